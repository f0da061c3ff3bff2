//! The case of HTTP/1 header names.

use config::MeshConfig;
use protos::envoy::config::core::v3::http1_protocol_options::HeaderKeyFormat;
use protos::envoy::config::core::v3::http1_protocol_options::header_key_format::HeaderFormat;
use protos::envoy::extensions::http::header_formatters::preserve_case::v3::PreserveCaseFormatterConfig;

use crate::parts::extension;

/// Whether the mesh preserves the case of header names (`proxyHeaders.preserveHttp1HeaderCase`).
pub(crate) fn keep_case(mesh: &MeshConfig) -> bool {
    let headers = mesh.default_config.proxy_headers.as_ref();
    headers.and_then(|headers| headers.preserve_http1_header_case).unwrap_or(false)
}

/// Preserves the received case of names; Envoy's default is lower case.
pub(crate) fn in_their_case() -> HeaderKeyFormat {
    let formatter = extension("preserve_case", &PreserveCaseFormatterConfig::default());
    HeaderKeyFormat { header_format: Some(HeaderFormat::StatefulFormatter(formatter)) }
}
