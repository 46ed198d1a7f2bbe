//! The operators' API as JSON over HTTP (R6.11), made of the `.proto` files: a new method there has its route
//! here without a line of code.
//!
//! `POST /v1/METHOD` with the request as JSON is that method of the operators' service, and
//! `POST /v1/SERVICE/METHOD` one of another service that operators may call: gRPC's health service. Messages
//! are written as protobuf's JSON mapping says. Of a method that takes or gives several messages, each is one
//! line.
//!
//! A request becomes a call of the same service that gRPC's clients call, in this process. So the guard, the
//! table of rights, the audit log and all bounds are theirs, and nothing is decided here. The body of a
//! request is read and turned into messages as the service asks for them, which is after the guard has let
//! the call through.
//!
//! - `contract`: which methods there are, and where.
//! - `message`: a message between JSON and protobuf, pure.
//! - `once`: no field twice, pure.
//! - `body`: the bodies of requests and answers, message by message.
//! - `failure`: a status as an HTTP answer.
//! - `openapi`: all of it as OpenAPI describes it, pure. `GET /v1/openapi.json` gives it out.
//! - `api`: what serves requests.

mod api;
mod body;
mod contract;
mod failure;
mod message;
mod once;
mod openapi;

pub use api::router;
pub use contract::{Contract, ContractError};
pub use openapi::openapi;
