//! Which methods the JSON API has, and where each is reached.

use fallow_proto::operator::v1::operator_server;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use tonic_health::pb::health_server;

/// What every path begins with.
pub(super) const ROOT: &str = "/v1/";
/// Where all of it is described.
pub(super) const DESCRIPTION: &str = "/v1/openapi.json";

/// What is built in is no contract.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// It cannot be read.
    #[error(transparent)]
    Descriptors(#[from] prost_reflect::DescriptorError),
    /// It lacks a service.
    #[error("it has no service {0}")]
    Missing(&'static str),
}

/// The methods as the `.proto` files have them.
#[derive(Clone, Debug)]
pub struct Contract {
    operator: ServiceDescriptor,
    health: ServiceDescriptor,
}

impl Contract {
    /// What is built into this program.
    ///
    /// # Errors
    /// [`ContractError`], in a build that is broken.
    pub fn read() -> Result<Self, ContractError> {
        let mut pool = DescriptorPool::decode(fallow_proto::DESCRIPTORS)?;
        pool.decode_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)?;
        let service = |name| pool.get_service_by_name(name).ok_or(ContractError::Missing(name));
        let operator = service(operator_server::SERVICE_NAME)?;
        Ok(Self { operator, health: service(health_server::SERVICE_NAME)? })
    }

    /// Every method with its path.
    pub fn methods(&self) -> impl Iterator<Item = (String, MethodDescriptor)> {
        self.operator.methods().chain(self.health.methods()).map(|method| {
            let path = match is_operators(method.parent_service()) {
                true => format!("{ROOT}{}", method.name()),
                false => format!("{ROOT}{}/{}", method.parent_service().full_name(), method.name()),
            };
            (path, method)
        })
    }

    /// The method at a path.
    pub(super) fn find(&self, path: &str) -> Option<MethodDescriptor> {
        self.methods().find_map(|(at, method)| (at == path).then_some(method))
    }
}

/// Whether this is the operators' own service, whose methods are known by their names alone.
pub(super) fn is_operators(service: &ServiceDescriptor) -> bool {
    service.full_name() == operator_server::SERVICE_NAME
}

/// Where gRPC has a method.
pub(super) fn grpc_path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}
