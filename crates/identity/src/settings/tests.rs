use super::*;

fn settings(variables: &[(&str, &str)]) -> Result<Settings, EnvironmentError> {
    Settings::from_environment(&variables.iter().copied().collect(), "istiod.istio-system.svc:15012")
}

#[test]
fn defaults_are_those_of_istio() {
    let settings = settings(&[("POD_NAMESPACE", "shop"), ("SERVICE_ACCOUNT", "cart")]).unwrap();
    assert_eq!(settings.authority.address, "istiod.istio-system.svc:15012");
    assert_eq!(settings.authority.roots, Roots::File("./var/run/secrets/istio/root-cert.pem".into()));
    assert_eq!(settings.authority.token, Some("./var/run/secrets/tokens/istio-token".into()));
    assert_eq!(settings.spiffe_id, "spiffe://cluster.local/ns/shop/sa/cart");
    assert_eq!((settings.key, settings.pkcs8), (KeyKind::Rsa2048, false));
    assert_eq!((settings.lifetime, settings.grace, settings.jitter), (Duration::from_hours(24), 0.5, 0.01));
    assert_eq!(settings.socket(), Path::new("./var/run/secrets/workload-spiffe-uds/socket"));
    assert_eq!(settings.own_socket(true), Path::new("./var/run/secrets/credential-uds/files-socket"));
    assert!(settings.mounted.is_none() && settings.serve && settings.output_mode == 0o600);
}

#[test]
fn the_roots_of_the_authority_follow_the_environment() {
    let file = |path: &str| Roots::File(path.into());
    for (variables, expected) in [
        (&[("CA_ROOT_CA", "SYSTEM")][..], Roots::System),
        (&[("CA_ROOT_CA", "/a.pem"), ("PROV_CERT", "/p")], file("/a.pem")),
        (&[("PROV_CERT", "/p")], file("/p/root-cert.pem")),
        (&[("PILOT_CERT_PROVIDER", "custom"), ("PROV_CERT", "/p")], file("./etc/certs/root-cert.pem")),
        (&[("CA_ADDR", "localhost:15010")], Roots::PlainText),
    ] {
        assert_eq!(settings(variables).unwrap().authority.roots, expected, "{variables:?}");
    }
}

#[test]
fn wrong_values_are_refused_with_a_remedy() {
    for (variables, remedy) in [
        (&[("CA_PROVIDER", "GoogleCAS")][..], "give Citadel"),
        (&[("CA_ADDR", "meshca.googleapis.com:443")], "Google's certificate authority is not supported"),
        (&[("CREDENTIAL_FETCHER_TYPE", "GoogleComputeEngine")], "give JWT"),
        (&[("WORKLOAD_RSA_KEY_SIZE", "1024")], "give 2048, 3072 or 4096"),
        (&[("ECC_SIGNATURE_ALGORITHM", "EdDSA")], "give ECDSA"),
        (&[("ECC_SIGNATURE_ALGORITHM", "ECDSA"), ("ECC_CURVE", "P521")], "give P256 or P384"),
        (&[("SECRET_GRACE_PERIOD_RATIO", "1.5")], "from 0 to 1"),
        (&[("SECRET_TTL", "1 day")], "give a duration"),
        (&[("WORKLOAD_IDENTITY_SOCKET_FILE", "../socket")], "without a folder"),
        (&[("PROV_CERT", "/p"), ("FILE_MOUNTED_CERTS", "true")], "either requested or mounted"),
    ] {
        let error = settings(variables).unwrap_err().to_string();
        assert!(error.contains(remedy), "{variables:?}: {error}");
    }
}

#[test]
fn mounted_certificates_are_found_by_the_metadata_of_the_node() {
    let mounted = |variables: &[(&str, &str)]| settings(variables).unwrap().mounted.unwrap().chain;
    assert_eq!(mounted(&[("FILE_MOUNTED_CERTS", "true")]), Path::new("./etc/certs/cert-chain.pem"));
    let client = [
        ("FILE_MOUNTED_CERTS", "true"),
        ("ISTIO_META_TLS_CLIENT_CERT_CHAIN", "/c/chain.pem"),
        ("ISTIO_META_TLS_CLIENT_KEY", "/c/key.pem"),
        ("ISTIO_META_TLS_CLIENT_ROOT_CERT", "/c/root.pem"),
    ];
    assert_eq!(mounted(&client), Path::new("/c/chain.pem"));
    let gke = [("CA_PROVIDER", "GkeWorkloadCertificate")];
    assert_eq!(mounted(&gke), Path::new("./var/run/secrets/workload-spiffe-credentials/certificates.pem"));
}

#[test]
fn the_path_of_a_revocation_list_stays_when_its_volume_is_updated() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("var/run/secrets/istio/crl");
    std::fs::create_dir_all(volume.join("..1")).unwrap();
    let mut settings = settings(&[]).unwrap();
    settings.folder = dir.path().to_owned();
    assert_eq!(settings.crl(), None);
    // As the kubelet writes a ConfigMap.
    std::fs::write(volume.join("..1/ca-crl.pem"), "list").unwrap();
    symlink("..1", volume.join("..data")).unwrap();
    symlink("..data/ca-crl.pem", volume.join("ca-crl.pem")).unwrap();
    assert_eq!(settings.crl(), Some(volume.join("ca-crl.pem")));
    settings.revocation = false;
    assert_eq!(settings.crl(), None);
}
