//! What machines and people show to prove who they are, and how changes are said to go out (R6.5, R6.10).

use fallow_domain::{AgentId, Duration, Instant};
use fallow_rollout::{Plan, Wave};
use fallow_tls::{AccessString, Address, Authority, HostCertificate, Purpose};
use ring::digest::{SHA256, digest};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target::new("access_string", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        // As it is, and with the check that makes it whole: behind that begins what is read.
        let sum = digest(&SHA256, text.as_bytes());
        let check: String = sum.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        for text in [text.to_string(), format!("{text}/{check}")] {
            for purpose in [Purpose::Enrolment, Purpose::Operator] {
                let Ok(read) = AccessString::parse(&text, purpose) else { continue };
                assert_eq!(AccessString::parse(&read.reveal(), purpose).unwrap(), read);
            }
        }
    }),
    Target::new("address", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(address) = text.parse::<Address>() else { return };
        assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
    }),
    Target::new("certificate_request", "", |bytes| {
        let Ok(key) = Authority::key_in(bytes) else { return };
        let (authority, ..) = Authority::create(Instant::EPOCH).unwrap();
        let agent = AgentId("01J".to_owned());
        let Ok(issued) = authority.issue_host(bytes, &agent, Instant::EPOCH, Duration::from_hours(1)) else {
            return;
        };
        assert_eq!((issued.says.agent, issued.says.key), (agent, key));
    }),
    Target::new("host_certificate", "", |bytes| {
        let _ = HostCertificate::read(bytes);
    }),
    Target::new("rollout_plan", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(plan) = Plan::new(&text, Duration::from_mins(10)) else { return };
        assert_eq!(plan.waves.last(), Some(&Wave::ALL));
        assert_eq!(Plan::new(&plan.written(), plan.soak).unwrap(), plan);
    }),
];
