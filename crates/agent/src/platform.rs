//! The cloud platform of this machine, from the metadata server that clouds have at a link-local address.
//!
//! The server is only asked where the firmware names the cloud, or `CLOUD_PLATFORM` does: elsewhere, the address belongs to
//! nobody, and each start would wait for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::environment::Environment;
use agent_status::client::{Connection, GetError, read, request};
use bootstrap::Platform;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use crate::surroundings::text;
use crate::{interfaces, surroundings};

/// The metadata server of all three clouds.
const SERVER: &str = "http://169.254.169.254/";
/// The server of instances of Amazon without IPv4.
const SERVER_IPV6: &str = "http://[fd00:ec2::254]/";
/// The time for all requests. The server is on the same host; in a pod, it may be unreachable by policy.
const LIMIT: Duration = Duration::from_secs(1);
/// The largest response that is read, in bytes.
const MAX_RESPONSE: usize = 256 << 10;
/// The directory of what the firmware says about the machine.
const FIRMWARE: &str = "/sys/class/dmi/id";
/// The identity of a virtual machine of Xen, which older instances of Amazon are.
const HYPERVISOR: &str = "/sys/hypervisor/uuid";
const RESOLVER: &str = "/etc/resolv.conf";

/// A cloud whose machines have a metadata server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cloud {
    Amazon,
    Azure,
    Google,
}

/// The places that describe the machine.
struct Machine {
    firmware: PathBuf,
    hypervisor: PathBuf,
    resolver: PathBuf,
    server: Url,
}

/// The platform of this machine; without facts if there is none, or if its server does not answer within a second.
pub(crate) async fn discover(environment: &Environment) -> Platform {
    let machine = match Machine::this(environment) {
        Ok(machine) => machine,
        Err(error) => {
            tracing::warn!(%error, "GCE_METADATA_HOST is not HOST or HOST:PORT; the cloud platform is not known");
            return Platform::default();
        }
    };
    machine.platform(environment).await
}

impl Machine {
    fn this(environment: &Environment) -> Result<Machine, url::ParseError> {
        let addresses = interfaces::addresses();
        let is_ipv6 = !addresses.is_empty() && addresses.iter().all(|(_, address)| address.is_ipv6());
        let server = match environment.text("GCE_METADATA_HOST") {
            Some(host) => Url::parse(&format!("http://{host}/"))?,
            None => Url::parse(if is_ipv6 { SERVER_IPV6 } else { SERVER })?,
        };
        Ok(Machine { firmware: FIRMWARE.into(), hypervisor: HYPERVISOR.into(), resolver: RESOLVER.into(), server })
    }

    async fn platform(&self, environment: &Environment) -> Platform {
        let Some(cloud) = self.cloud(environment) else { return Platform::default() };
        if cloud == Cloud::Google
            && let Some(platform) = Platform::from_variables(&surroundings::variables(environment))
        {
            return platform;
        }
        let asked = async {
            match cloud {
                Cloud::Amazon => self.amazon().await,
                Cloud::Azure => self.azure().await,
                Cloud::Google => self.google().await,
            }
        };
        let error = match timeout(LIMIT, asked).await {
            Ok(Ok(platform)) => {
                tracing::info!(
                    ?cloud,
                    region = platform.locality.region,
                    zone = platform.locality.zone,
                    "the cloud platform"
                );
                return platform;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {LIMIT:?}"),
        };
        tracing::warn!(
            ?cloud,
            error,
            server = %self.server,
            "the cloud's metadata server does not answer: the proxy reports no PLATFORM_METADATA, and no locality unless its \
             labels have one; set CLOUD_PLATFORM=none to not ask"
        );
        Platform::default()
    }

    /// The cloud that `CLOUD_PLATFORM` names, or the environment and the firmware do.
    fn cloud(&self, environment: &Environment) -> Option<Cloud> {
        match environment.text("CLOUD_PLATFORM").map(str::to_ascii_lowercase).as_deref() {
            Some("aws") => return Some(Cloud::Amazon),
            Some("azure") => return Some(Cloud::Azure),
            Some("gcp") => return Some(Cloud::Google),
            Some("none") => return None,
            Some(other) => {
                tracing::warn!("CLOUD_PLATFORM is {other:?} and not aws, azure, gcp or none; the cloud is detected");
            }
            None => {}
        }
        let has_variables = ["GCP_METADATA", "GCE_METADATA_HOST"].iter().any(|name| environment.text(name).is_some());
        let begins = |path: &Path, with: &str| text(path).is_some_and(|text| text.starts_with(with));
        let says = |file: &str, name: &str| begins(&self.firmware.join(file), name);
        if has_variables || says("product_name", "Google") {
            Some(Cloud::Google)
        } else if says("sys_vendor", "Microsoft Corporation") {
            Some(Cloud::Azure)
        } else if says("sys_vendor", "Amazon EC2") || begins(&self.hypervisor, "ec2") {
            Some(Cloud::Amazon)
        } else {
            None
        }
    }

    async fn amazon(&self) -> Result<Platform, GetError> {
        let lifetime = header("x-aws-ec2-metadata-token-ttl-seconds", "60");
        // The first version of the service has no tokens.
        let token = self.fetch(Method::PUT, "latest/api/token", &lifetime).await?;
        let token = token.map(|token| header("x-aws-ec2-metadata-token", &token)).unwrap_or_default();
        let fact = async |name: &str| self.get(&format!("latest/meta-data/{name}"), &token).await;
        let (region, zone, instance) =
            tokio::try_join!(fact("placement/region"), fact("placement/availability-zone"), fact("instance-id"))?;
        Ok(Platform::amazon(&region, &zone, &instance))
    }

    async fn azure(&self) -> Result<Platform, GetError> {
        let document = self.get("metadata/instance?api-version=2021-02-01", &header("metadata", "true")).await?;
        Ok(Platform::azure(&serde_json::from_str(&document).unwrap_or(Value::Null)))
    }

    async fn google(&self) -> Result<Platform, GetError> {
        let flavor = header("metadata-flavor", "Google");
        let fact = async |path: &str| self.get(&format!("computeMetadata/v1/{path}"), &flavor).await;
        let zone = async {
            match zone_of_resolver(&text(&self.resolver).unwrap_or_default()) {
                Some(zone) => Ok(zone),
                None => fact("instance/zone").await.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned()),
            }
        };
        let (zone, project, number, location, cluster, name, id, template, creator) = tokio::try_join!(
            zone,
            fact("project/project-id"),
            fact("project/numeric-project-id"),
            fact("instance/attributes/cluster-location"),
            fact("instance/attributes/cluster-name"),
            fact("instance/name"),
            fact("instance/id"),
            fact("instance/attributes/instance-template"),
            fact("instance/attributes/created-by"),
        )?;
        let facts = [
            ("gcp_project", project),
            ("gcp_project_number", number),
            ("gcp_location", if location.is_empty() { zone.clone() } else { location }),
            ("gcp_gke_cluster_name", cluster),
            ("gcp_gce_instance", name),
            ("gcp_gce_instance_id", id),
            ("gcp_gce_instance_template", template),
            ("gcp_gce_instance_created_by", creator),
        ];
        let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
        Ok(Platform::google(known.map(|(key, value)| (key.to_owned(), value)).collect(), &zone))
    }

    /// A fact; empty if the server does not have it.
    async fn get(&self, path: &str, headers: &HeaderMap) -> Result<String, GetError> {
        Ok(self.fetch(Method::GET, path, headers).await?.unwrap_or_default())
    }

    async fn fetch(&self, method: Method, path: &str, headers: &HeaderMap) -> Result<Option<String>, GetError> {
        let url = self.server.join(path).map_err(|_| GetError::Url(path.to_owned()))?;
        let mut connection = Connection::open(&url, false, false).await?;
        let response = connection.send(request(method, &url, headers, Bytes::new(), false)?).await;
        let response = response.map_err(|error| GetError::Http(url.to_string(), error))?;
        if response.status() != StatusCode::OK {
            return Ok(None);
        }
        let (body, is_complete) = read(response.into_body(), MAX_RESPONSE).await;
        Ok(String::from_utf8(body.into()).ok().filter(|_| is_complete).map(|text| text.trim().to_owned()))
    }
}

fn header(name: &'static str, value: &str) -> HeaderMap {
    HeaderValue::from_str(value).map(|value| (HeaderName::from_static(name), value)).into_iter().collect()
}

/// The zone in the search domains of a machine of Google: `ZONE.c.PROJECT.internal`.
fn zone_of_resolver(text: &str) -> Option<String> {
    let searches = text.lines().filter_map(|line| line.strip_prefix("search"));
    let zone = |domain: &str| {
        let (zone, project) = domain.strip_suffix(".internal")?.split_once(".c.")?;
        (!project.is_empty() && zone.split('-').count() == 3).then(|| zone.to_owned())
    };
    searches.flat_map(str::split_whitespace).find_map(zone)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use std::thread;

    use super::*;

    /// A metadata server with these bodies by `METHOD PATH`, which requires a header of each request.
    struct Server {
        url: Url,
        /// The requests without the required header.
        refused: Arc<Mutex<BTreeSet<String>>>,
    }

    impl Server {
        fn start(required: &'static str, bodies: &'static [(&'static str, &'static str)]) -> Server {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
            let refused = Arc::new(Mutex::new(BTreeSet::new()));
            let all = refused.clone();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                    let first = lines.next().unwrap_or_default().replace(" HTTP/1.1", "");
                    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                    if !headers.iter().any(|line| line == required) {
                        all.lock().unwrap().insert(first.clone());
                    }
                    let answer = match bodies.iter().find(|(request, _)| *request == first) {
                        Some((_, body)) => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
                        None => "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno".to_owned(),
                    };
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
            Server { url, refused }
        }

        /// A machine with this server and these files.
        fn machine(&self, files: &[(&str, &str)]) -> (Machine, tempfile::TempDir) {
            let directory = tempfile::tempdir().unwrap();
            for (name, text) in files {
                fs::write(directory.path().join(name), text).unwrap();
            }
            let at = |name: &str| directory.path().join(name);
            let machine = Machine {
                firmware: directory.path().to_owned(),
                hypervisor: at("uuid"),
                resolver: at("resolv.conf"),
                server: self.url.clone(),
            };
            (machine, directory)
        }
    }

    fn shown(platform: &Platform) -> String {
        let mut facts: Vec<String> = platform.metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
        facts.push(format!("{}/{}", platform.locality.region, platform.locality.zone));
        facts.join(" ")
    }

    #[tokio::test]
    async fn an_amazon_instance_is_asked_with_a_token() {
        let server = Server::start(
            "x-aws-ec2-metadata-token: secret",
            &[
                ("PUT /latest/api/token", "secret\n"),
                ("GET /latest/meta-data/placement/region", "eu-west-1"),
                ("GET /latest/meta-data/placement/availability-zone", "eu-west-1b"),
            ],
        );
        let (machine, _files) = server.machine(&[("sys_vendor", "Amazon EC2\n")]);
        let platform = machine.platform(&Environment::default()).await;
        assert_eq!(shown(&platform), "aws_availability_zone=eu-west-1b aws_region=eu-west-1 eu-west-1/eu-west-1b");
        let refused = server.refused.lock().unwrap();
        assert_eq!(*refused, BTreeSet::from(["PUT /latest/api/token".to_owned()]), "only the token has no token");
    }

    #[tokio::test]
    async fn an_azure_machine_has_one_document() {
        const PATH: &str = "GET /metadata/instance?api-version=2021-02-01";
        let server =
            Server::start("metadata: true", &[(PATH, r#"{"compute": {"name": "vm", "location": "westeurope"}}"#)]);
        let (machine, _files) = server.machine(&[("sys_vendor", "Microsoft Corporation\n")]);
        let platform = machine.platform(&Environment::default()).await;
        assert_eq!(shown(&platform), "azure_location=westeurope azure_name=vm westeurope/", "{PATH}");
        assert!(server.refused.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_google_instance_has_its_zone_in_the_search_domains_or_at_the_server() {
        let server = Server::start(
            "metadata-flavor: Google",
            &[
                ("GET /computeMetadata/v1/project/project-id", "shop"),
                ("GET /computeMetadata/v1/instance/attributes/cluster-name", "prod"),
                ("GET /computeMetadata/v1/instance/zone", "projects/1/zones/us-east1-b"),
            ],
        );
        let (machine, _files) = server.machine(&[("product_name", "Google Compute Engine\n")]);
        let platform = machine.platform(&Environment::default()).await;
        let expected = "gcp_gke_cluster_name=prod gcp_gke_cluster_url=https://container.googleapis.com/v1/projects/shop/\
                        locations/us-east1-b/clusters/prod gcp_location=us-east1-b gcp_project=shop us-east1/us-east1-b";
        assert_eq!(shown(&platform), expected);
        let search = "search a.svc.cluster.local us-central1-f.c.shop.internal google.internal\n";
        let (machine, _files) = server.machine(&[("product_name", "Google"), ("resolv.conf", search)]);
        let platform = machine.platform(&Environment::default()).await;
        assert_eq!(platform.locality.zone, "us-central1-f");
        assert!(server.refused.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn variables_replace_the_server() {
        let server = Server::start("", &[]);
        let (machine, _files) = server.machine(&[]);
        let environment = [("GCP_METADATA", "shop|1|prod|us-east1"), ("GCP_ZONE", "us-east1-b")].into_iter().collect();
        let platform = machine.platform(&environment).await;
        assert_eq!((platform.metadata["gcp_project"].as_str(), &*platform.locality.region), ("shop", "us-east1"));
        assert!(server.refused.lock().unwrap().is_empty(), "the server is not asked");
    }

    #[tokio::test]
    async fn without_a_cloud_nobody_is_asked_and_a_server_that_does_not_answer_is_no_error() {
        let server = Server::start("", &[]);
        let (mut machine, _files) = server.machine(&[("sys_vendor", "QEMU\n"), ("product_name", "Standard PC")]);
        let none = [("CLOUD_PLATFORM", "none"), ("GCP_METADATA", "a|b|c|d")].into_iter().collect();
        for environment in [Environment::default(), none] {
            assert_eq!(machine.platform(&environment).await, Platform::default());
        }
        assert!(server.refused.lock().unwrap().is_empty(), "the server is not asked");
        let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        machine.server = Url::parse(&format!("http://{closed}/")).unwrap();
        for name in ["aws", "Azure", "gcp"] {
            let environment = [("CLOUD_PLATFORM", name)].into_iter().collect();
            assert_eq!(machine.platform(&environment).await, Platform::default(), "{name}");
        }
    }

    #[test]
    fn zones_of_search_domains() {
        for (text, expected) in [
            (
                "nameserver 10.0.0.10\nsearch svc.local us-central1-f.c.shop.internal c.shop.internal",
                Some("us-central1-f"),
            ),
            ("search c.shop.internal google.internal", None),
            ("nameserver us-central1-f.c.shop.internal", None),
            ("", None),
        ] {
            assert_eq!(zone_of_resolver(text).as_deref(), expected, "{text}");
        }
    }
}
