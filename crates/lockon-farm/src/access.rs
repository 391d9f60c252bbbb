//! The address of a farm's server, and the login there.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError};

use lockon_core::error::{Error, Result};
use lockon_core::files;
use lockon_core::locks::lock;
use lockon_core::text;
use lockon_run::request::decoded;

/// The default namespace.
const NAMESPACE: &str = "main";

/// How long one server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server's last refusal of a user's message.
pub(super) type Denied = Arc<Mutex<Option<String>>>;

/// A farm: its servers, its name there, and the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `nats://HOST[:PORT]` or `tls://HOST[:PORT]`, of a cluster several with commas between them; with
    /// `USER:PASSWORD@` or `TOKEN@` in front of the host if the server requires it.
    pub servers: String,
    /// It separates farms on one server.
    pub namespace: Namespace,
    /// A file with one line, `USER:PASSWORD` or a token, or one that `nsc` wrote (`.creds`).
    pub credentials: Option<PathBuf>,
    /// Certificates (PEM) of the authority that signed the server's, if the system does not know it.
    pub authority: Option<PathBuf>,
    /// The client's own certificate and its key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// The name of a farm: letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace(String);

impl Default for Namespace {
    fn default() -> Self {
        Self(NAMESPACE.into())
    }
}

impl FromStr for Namespace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_harmless = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > 32 || !text.chars().all(is_harmless) {
            return Err(Error::value("namespace", text, "expected up to 32 letters, digits, - and _"));
        }
        Ok(Self(text.into()))
    }
}

impl std::fmt::Display for Namespace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The login that a server requires.
#[derive(Debug, PartialEq, Eq)]
enum Secret {
    None,
    Login(String, String),
    Token(String),
    /// The text of a `.creds` file.
    Creds(String),
}

impl Access {
    /// The default farm of these servers.
    pub fn new(servers: impl Into<String>) -> Self {
        let (namespace, credentials, authority, certificate) = Default::default();
        Self { servers: servers.into(), namespace, credentials, authority, certificate }
    }

    /// The servers without passwords, as messages have them.
    pub fn name(&self) -> String {
        shown(&self.servers)
    }

    /// Refuses text that is no list of servers.
    ///
    /// # Errors
    /// `Usage`.
    pub fn check(&self) -> Result<()> {
        self.addresses().map(drop)
    }

    /// Connects. A connection that is lost later is restored, however long that takes.
    ///
    /// # Errors
    /// `Usage` if the address is invalid; `File` if a file cannot be read; `Refused` if the server does not
    /// accept this user; `Unreachable` if no server answers.
    pub(super) async fn connect(&self, client: &str, denied: &Denied) -> Result<Client> {
        let addresses = self.addresses()?;
        let denied = denied.clone();
        let mut options = ConnectOptions::new()
            .name(client)
            .connection_timeout(PATIENCE)
            .request_timeout(Some(PATIENCE))
            .ping_interval(Duration::from_secs(5))
            .max_reconnects(None)
            .reconnect_delay_callback(delay)
            .event_callback(move |event| {
                // The server does not answer a forbidden message; it reports the refusal as an event.
                if let Event::ServerError(ServerError::Other(said)) = &event
                    && said.to_ascii_lowercase().contains("permissions violation")
                {
                    *lock(&denied) = Some(said.clone());
                }
                async move { tracing::debug!("farm: {event}") }
            });
        options = match self.secret(&addresses)? {
            Secret::None => options,
            Secret::Login(user, password) => options.user_and_password(user, password),
            Secret::Token(token) => options.token(token),
            Secret::Creds(text) => options.credentials(&text).map_err(|error| {
                Error::Usage(format!("the farm's credentials are no file that nsc writes: {error}"))
            })?,
        };
        if let Some(path) = &self.authority {
            options = options.add_root_certificates(readable(path)?);
        }
        if let Some((certificate, key)) = &self.certificate {
            options = options.add_client_certificate(readable(certificate)?, readable(key)?);
        }
        options.connect(without_logins(addresses)?).await.map_err(|error| self.in_words(&error))
    }

    fn addresses(&self) -> Result<Vec<ServerAddr>> {
        let parse = |address: &str| {
            // A comma in a password cuts it in two, and one half may not look like a password.
            let shown = if self.servers.contains('@') { self.name() } else { shown(address) };
            let usage = |what: &dyn std::fmt::Display| {
                Error::Usage(format!("--farm {shown}: {what}; expected nats://HOST[:PORT]"))
            };
            let is_whole = address.contains("://");
            let whole = if is_whole { address.into() } else { format!("nats://{address}") };
            if text::has_raw_login(&whole) {
                return Err(usage(&text::ESCAPES));
            }
            match address.split_once("://") {
                None | Some(("nats" | "tls", _)) => {}
                Some((scheme, _)) if text::is_scheme(scheme) => {
                    return Err(usage(&format!("{scheme}:// is not known")));
                }
                // It may be a part of a password.
                Some(_) => return Err(usage(&"its scheme is not known")),
            }
            let parsed = address.parse::<ServerAddr>().map_err(|error| usage(&error))?;
            if parsed.host().is_empty() { Err(usage(&"it names no host")) } else { Ok(parsed) }
        };
        let named = self.servers.split(',').map(str::trim).filter(|address| !address.is_empty());
        let addresses = named.map(parse).collect::<Result<Vec<_>>>()?;
        if addresses.is_empty() {
            return Err(Error::Usage("--farm names no server; expected nats://HOST[:PORT]".into()));
        }
        Ok(addresses)
    }

    fn secret(&self, addresses: &[ServerAddr]) -> Result<Secret> {
        if let Some(path) = &self.credentials {
            let text = files::read_text(path)?;
            let line = text.trim();
            return match line.split_once(':') {
                _ if line.contains("BEGIN NATS USER JWT") => Ok(Secret::Creds(text)),
                _ if line.is_empty() || line.lines().count() > 1 => Err(Error::Usage(format!(
                    "{}: expected one line, USER:PASSWORD or a token, or a file that nsc writes",
                    text::path(path)
                ))),
                Some((user, password)) => Ok(Secret::Login(user.into(), password.into())),
                None => Ok(Secret::Token(line.into())),
            };
        }
        let named = addresses.iter().find_map(|address| Some((address.username()?, address.password())));
        let decoded = |part| decoded(part).map_err(|why| Error::Usage(format!("the farm's login: {why}")));
        Ok(match named {
            None => Secret::None,
            Some((user, Some(password))) => Secret::Login(decoded(user)?, decoded(password)?),
            Some((token, None)) => Secret::Token(decoded(token)?),
        })
    }

    fn in_words(&self, error: &ConnectError) -> Error {
        let input = self.name();
        let source = std::error::Error::source(error);
        let why = source.map_or_else(|| error.to_string(), ToString::to_string);
        // The client reports an invalid certificate as invalid data.
        let is_of_tls = |source: &io::Error| source.kind() == io::ErrorKind::InvalidData;
        let kind = match source.and_then(|source| source.downcast_ref()) {
            Some(source) if is_of_tls(source) => ConnectErrorKind::Tls,
            _ => error.kind(),
        };
        match kind {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => Error::Refused {
                input,
                reason: "the farm's server wants another user, password or token: give --farm-credentials \
                         FILE, or USER:PASSWORD@ in front of the host"
                    .into(),
            },
            ConnectErrorKind::Tls => Error::Refused {
                input,
                reason: format!("no TLS with the farm's server: {why} (--farm-ca, --farm-cert, --farm-key)"),
            },
            _ => Error::Unreachable {
                input,
                reason: format!("the farm's server does not answer: {why}; is nats-server running there?"),
            },
        }
    }
}

/// Addresses without user and password: the client logs addresses, and gets the login by itself.
fn without_logins(addresses: Vec<ServerAddr>) -> Result<Vec<ServerAddr>> {
    let place = |address: ServerAddr| {
        let (host, port) = (address.host(), address.port());
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let place = format!("{}://{host}:{port}", address.scheme());
        place.parse::<ServerAddr>().map_err(|error| Error::Usage(format!("--farm {host}: {error}")))
    };
    addresses.into_iter().map(place).collect()
}

/// A list of servers without passwords. A server may be named without its scheme, and a password may have a
/// comma: so everything is hidden up to the last `@` of an address, and of the addresses without a scheme
/// behind it.
fn shown(servers: &str) -> String {
    let mut addresses: Vec<String> = Vec::new();
    for part in servers.split(',') {
        match addresses.last_mut() {
            Some(last) if !part.contains("://") => {
                last.push(',');
                last.push_str(part);
            }
            _ => addresses.push(part.into()),
        }
    }
    let open = |address: &String| {
        let (scheme, rest) =
            address.split_once("://").map_or(("", &**address), |(scheme, rest)| (scheme, rest));
        let Some(at) = rest.rfind('@') else { return text::without_secrets(address).into_owned() };
        let scheme = if text::is_scheme(scheme) { scheme } else { "" };
        let mark = if scheme.is_empty() { "" } else { "://" };
        format!("{scheme}{mark}{}{}", text::HIDDEN, text::without_secrets(&rest[at..]))
    };
    text::in_one_line(&addresses.iter().map(open).collect::<Vec<_>>().join(",")).into_owned()
}

/// How long to wait before a try to connect, also before the first one.
fn delay(tries: usize) -> Duration {
    if tries <= 1 { Duration::ZERO } else { Duration::from_millis((50 << tries.min(5)).min(1000)) }
}

fn readable(path: &Path) -> Result<PathBuf> {
    std::fs::File::open(path).map_err(Error::file("read", path))?;
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(servers: &str, file: Option<&str>) -> Result<Secret> {
        let folder = tempfile::tempdir().unwrap();
        let mut access = Access::new(servers);
        if let Some(text) = file {
            let path = folder.path().join("login");
            std::fs::write(&path, text).unwrap();
            access.credentials = Some(path);
        }
        access.secret(&access.addresses()?)
    }

    #[test]
    fn who_one_is_stands_in_the_address_or_in_a_file_which_counts_more() {
        let login = |user: &str, password: &str| Secret::Login(user.into(), password.into());
        for (servers, file, expected) in [
            ("nats://a", None, Secret::None),
            ("a:4222,b", None, Secret::None),
            ("nats://me:pw@a", None, login("me", "pw")),
            ("nats://a,nats://me:pw@b", None, login("me", "pw")),
            ("tls://t0ken@a", None, Secret::Token("t0ken".into())),
            ("nats://me:a%40b%3A%2F@a", None, login("me", "a@b:/")),
            ("nats://t%20k%25@a", None, Secret::Token("t k%".into())),
            ("nats://me:pw@a", Some("you:p:w\n"), login("you", "p:w")),
            ("nats://a", Some("t0ken\n"), Secret::Token("t0ken".into())),
        ] {
            assert_eq!(secret(servers, file).unwrap(), expected, "{servers} {file:?}");
        }
        assert!(matches!(secret("a", Some("-----BEGIN NATS USER JWT-----\nx:y")), Ok(Secret::Creds(_))));
        for file in ["", "a\nb\n"] {
            assert!(secret("a", Some(file)).unwrap_err().to_string().contains("expected one line"));
        }
    }

    #[test]
    fn the_client_gets_addresses_that_it_may_log() {
        for (typed, expected) in [
            ("nats://me:s3cret@a", "nats://a:4222"),
            ("tls://s3cret@a:77", "tls://a:77"),
            ("me:s3cret@[::1]:5", "nats://[::1]:5"),
            ("127.0.0.1", "nats://127.0.0.1:4222"),
        ] {
            let addresses = without_logins(Access::new(typed).addresses().unwrap()).unwrap();
            assert_eq!(addresses, [expected.parse().unwrap()], "{typed}");
            assert!(!format!("{addresses:?}").contains("s3cret"), "{typed}");
        }
    }

    #[test]
    fn a_password_is_shown_neither_without_a_scheme_nor_cut_in_two_by_a_comma() {
        for (servers, expected) in [
            ("a:4222,b", "a:4222,b"),
            ("nats://u:secret@a:1,tls://v:secret@b", "nats://***@a:1,tls://***@b"),
            ("u:secret@a:4222", "***@a:4222"),
            ("secret@a", "***@a"),
            ("nats:/u:secret@h", "***@h"),
            ("nats:u:secret@h", "***@h"),
            ("nats://u:sec,secret@h", "nats://***@h"),
            ("u:sec,secret@h,c:1", "***@h,c:1"),
            ("nats://a,u:sec@ret,secret@h", "nats://***@h"),
            ("u@secret://x@h", "***@h"),
        ] {
            let access = Access::new(servers);
            assert_eq!(access.name(), expected, "{servers}");
            if let Err(error) = access.check() {
                assert!(!error.to_string().contains("sec"), "{servers}: {error}");
            }
        }
        for servers in ["nats:/u:secret@h", "u:sec/ret@h", "nats://u:12,secret@h"] {
            let error = Access::new(servers).check().err().map(|error| error.to_string());
            let is_hidden = |said: &String| !said.contains("sec") && !said.contains("12");
            assert!(error.is_none_or(|said| is_hidden(&said)), "{servers}");
        }
        assert!(Access::new("nats:/u:secret@h").check().is_err(), "it would go to a server called nats");
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for servers in ["http://me:secret@a", "nats://me:secret@a:port"] {
            let said = Access::new(servers).addresses().unwrap_err().to_string();
            assert!(said.contains("nats://HOST[:PORT]") && !said.contains("secret"), "{said}");
        }
        for servers in ["", " ", ",", " , ", "nats://", "nats://:4222", "tls://u:secret@", "a,nats://"] {
            let error = Access::new(servers).check().unwrap_err();
            assert!(error.is_usage() && !error.to_string().contains("secret"), "{servers}: {error}");
        }
        for name in ["", "a.b", "a b", "a*", &"x".repeat(33)] {
            assert!(name.parse::<Namespace>().is_err(), "{name}");
        }
        assert_eq!("night_2-b".parse::<Namespace>().unwrap().to_string(), "night_2-b");
    }
}
