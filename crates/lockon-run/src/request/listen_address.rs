//! Typed addresses to listen at.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use lockon_core::error::{Error, Result};

/// An address to listen at: `PORT` of this machine's own 127.0.0.1, or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    host: String,
    port: u16,
}

impl FromStr for ListenAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad =
            || Error::value("address", text, "expected PORT or HOST:PORT, such as 9090 or 0.0.0.0:9090");
        if let Ok(port) = text.parse() {
            return Ok(Self { host: Ipv4Addr::LOCALHOST.to_string(), port });
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host.strip_suffix(']').filter(|host| host.parse::<Ipv6Addr>().is_ok()),
            None => Some(host).filter(|host| !host.is_empty() && !host.contains(':')),
        };
        let host = host.ok_or_else(bad)?.to_owned();
        Ok(Self { host, port: port.parse().map_err(|_| bad())? })
    }
}

impl ListenAddress {
    /// The typed host; 127.0.0.1 for a port alone.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Listens there.
    ///
    /// # Errors
    /// `Listen` if the address is in use, or is not an address of this machine.
    pub fn listen(&self) -> Result<TcpListener> {
        let failed = |cause| Error::Listen { address: self.to_string(), cause };
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(failed)?;
        TcpListener::bind(found.collect::<Vec<_>>().as_slice()).map_err(failed)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_is_this_machines_own() {
        assert_eq!("9090".parse::<ListenAddress>().unwrap().to_string(), "127.0.0.1:9090");
        assert_eq!("[::1]:80".parse::<ListenAddress>().unwrap().to_string(), "[::1]:80");
        assert_eq!("localhost:0".parse::<ListenAddress>().unwrap().to_string(), "localhost:0");
        for text in
            ["", ":9090", "a", "1.2.3.4", "::1:80", "[::1", "[x]:80", "host:99999", "65536", "-1", "host:"]
        {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
        let listener = "0".parse::<ListenAddress>().unwrap().listen().unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }
}
