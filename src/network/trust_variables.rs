//! The variables by which programs find the certificates that they trust. A sandbox whose TLS is inspected has them all.

/// Variables with a file that replaces the trusted certificates of a program.
pub(crate) const BUNDLE_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE", // OpenSSL, and with it Python and Ruby; Go; rustls
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "NIX_SSL_CERT_FILE",
];

/// The variable with a file of additional certificates for Node.
pub(crate) const NODE_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// The variable with options for Java, one of which is its key store.
pub(crate) const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// Whether a variable is one of them.
pub(crate) fn is_trust_variable(name: &str) -> bool {
    BUNDLE_VARIABLES.contains(&name) || name == NODE_VARIABLE || name == JAVA_VARIABLE
}
