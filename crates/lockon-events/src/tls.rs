//! The certificates that receivers must have.

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Returns a configuration that accepts certificates of authorities that the system knows, or of those in the
/// file that the variable `SSL_CERT_FILE` names.
pub(super) fn config() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!("events: {error}");
    }
    roots.add_parsable_certificates(found.certs);
    ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring has what the usual versions of TLS need")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
