//! One connection to a broker: bytes over TCP or TLS on one side, messages and answers on the other.
//!
//! The codec of `rumqttc` writes and reads the packets. Its client is not used: it forgets messages that were
//! not acknowledged when a connection ends, and reads without a bound. A [`Connection`] has no task of its
//! own: it reads and writes inside [`Connection::next`]. Memory is bounded by [`MAX_UNSENT`] and
//! [`MAX_PACKET`].

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rumqttc::mqttbytes::v4::{
    Connect, ConnectReturnCode, LastWill, Packet, Publish, Subscribe, SubscribeFilter, SubscribeReasonCode,
    Unsubscribe,
};
use rumqttc::mqttbytes::{self, QoS};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::super::{MOST_BYTES, tls};
use lockon_run::request::Broker;

/// Maximum number of messages that are sent but not acknowledged.
const MAX_UNANSWERED: usize = 50;

/// No message is sent while more bytes than this wait to be written.
const MAX_UNSENT: usize = 1 << 20;

/// Longer packets are skipped: no message of lockon is as long.
const MAX_PACKET: usize = 2 * MOST_BYTES;

/// Bytes that are read at once.
const READ_SIZE: usize = 16 << 10;

/// The broker is pinged this often, and has this long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Maximum time until the broker has accepted the connection.
const CONNECTING: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 5000 });

/// Maximum time until the broker has acknowledged any of the messages sent. A broker that only answers pings
/// has abandoned the connection.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 30_000 });

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The broker refused it.
    Refused(ConnectReturnCode),
    /// The broker did not answer in time.
    Silent,
    /// The broker closed it.
    Closed,
    Io(io::Error),
    /// The broker sent something else than MQTT 3.1.1.
    Protocol(mqttbytes::Error),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized) => {
                f.write_str("the broker does not accept this user and password")
            }
            Self::Refused(code) => write!(f, "the broker refuses the connection: {code:?}"),
            Self::Silent => f.write_str("no answer"),
            Self::Closed => f.write_str("the broker closed the connection"),
            Self::Io(error) => write!(f, "{error}"),
            Self::Protocol(error) => write!(f, "the answer is not MQTT 3.1.1: {error}"),
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<mqttbytes::Error> for Ended {
    fn from(error: mqttbytes::Error) -> Self {
        Self::Protocol(error)
    }
}

/// A message to the broker, sent with quality of service 1.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// Later ones have higher numbers.
    pub(super) number: u64,
    pub(super) topic: String,
    pub(super) payload: Bytes,
    pub(super) is_retained: bool,
    pub(super) is_event: bool,
}

/// An answer of the broker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It has received the message of that number.
    Acknowledged(u64),
    /// It retains that payload at that topic.
    Retains(String, Bytes),
    /// It has accepted a subscription, or refused a part of it.
    Subscribed(bool),
    /// It has answered a ping.
    Pong,
    /// Something else, or nothing yet.
    Other,
}

/// The broker to connect to, and the login.
pub(super) struct Access {
    host: String,
    port: u16,
    connect: Connect,
    tls: Option<Arc<ClientConfig>>,
}

impl Access {
    /// Connects as a client of that name. If the connection is lost, the broker publishes `will` at its
    /// topic.
    pub(super) fn new(broker: &Broker, client: String, will: Option<(String, &'static str)>) -> Self {
        let mut connect = Connect::new(client);
        connect.keep_alive = KEEP_ALIVE.as_secs() as u16;
        if let Some(login) = &broker.login {
            connect.set_login(&login.user, &login.password);
        }
        connect.last_will = will.map(|(topic, text)| LastWill::new(topic, text, QoS::AtLeastOnce, true));
        let tls = broker.is_secure.then(|| Arc::new(tls::config()));
        Self { host: broker.host.clone(), port: broker.port, connect, tls }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that the broker has accepted.
pub(super) struct Connection {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    received: BytesMut,
    /// Bytes of a too long packet that are not received yet.
    skipped: usize,
    unsent: BytesMut,
    /// TLS may still hold written bytes.
    is_flushed: bool,
    /// Messages by the numbers in their packets, which the broker repeats in its answers.
    unanswered: BTreeMap<u16, u64>,
    /// The number in the newest packet.
    packet: u16,
    /// The time of the last acknowledgement, or of a message sent when none was unanswered.
    waits_since: Instant,
    next_ping: Instant,
    is_pinged: bool,
}

impl Connection {
    /// Connects.
    pub(super) async fn open(access: &Access) -> Result<Self, Ended> {
        timeout(CONNECTING, Self::connect(access)).await.map_err(|_| Ended::Silent)?
    }

    async fn connect(access: &Access) -> Result<Self, Ended> {
        let tcp = TcpStream::connect((&*access.host, access.port)).await?;
        // Otherwise small messages would wait for the answers to earlier ones.
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &access.tls {
            None => Box::new(tcp),
            Some(config) => {
                let name = ServerName::try_from(access.host.clone())
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                Box::new(TlsConnector::from(config.clone()).connect(name, tcp).await?)
            }
        };
        let (reader, writer) = tokio::io::split(stream);
        let now = Instant::now();
        let mut connection = Self {
            reader,
            writer,
            received: BytesMut::new(),
            skipped: 0,
            unsent: BytesMut::new(),
            is_flushed: true,
            unanswered: BTreeMap::new(),
            packet: 0,
            waits_since: now,
            next_ping: now + KEEP_ALIVE,
            is_pinged: false,
        };
        connection.write(&Packet::Connect(access.connect.clone()))?;
        loop {
            match connection.packet()? {
                Some(Packet::ConnAck(answer)) if answer.code == ConnectReturnCode::Success => {
                    return Ok(connection);
                }
                Some(Packet::ConnAck(answer)) => return Err(Ended::Refused(answer.code)),
                Some(_) => return Err(Ended::Protocol(mqttbytes::Error::IncorrectPacketFormat)),
                None => connection.transfer(now + CONNECTING).await?,
            }
        }
    }

    /// Number of messages that were sent and not acknowledged.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// True if another message may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.unanswered.len() < MAX_UNANSWERED && self.unsent.len() < MAX_UNSENT
    }

    /// Sends a message; [`Self::next`] writes it. The caller has checked [`Self::has_room`].
    pub(super) fn send(&mut self, message: &Message) -> Result<(), Ended> {
        if self.unanswered.is_empty() {
            self.waits_since = Instant::now();
        }
        let mut publish =
            Publish::from_bytes(message.topic.clone(), QoS::AtLeastOnce, message.payload.clone());
        (publish.retain, publish.pkid) = (message.is_retained, self.next_packet());
        self.unanswered.insert(publish.pkid, message.number);
        self.write(&Packet::Publish(publish))
    }

    /// Subscribes to topics. With quality of service 0 the broker stores nothing that this connection does
    /// not read.
    pub(super) fn subscribe(&mut self, filters: impl IntoIterator<Item = String>) -> Result<(), Ended> {
        let filters = filters.into_iter().map(|path| SubscribeFilter::new(path, QoS::AtMostOnce));
        let mut subscribe = Subscribe::new_many(filters);
        subscribe.pkid = self.next_packet();
        self.write(&Packet::Subscribe(subscribe))
    }

    pub(super) fn unsubscribe(&mut self, filters: Vec<String>) -> Result<(), Ended> {
        let pkid = self.next_packet();
        self.write(&Packet::Unsubscribe(Unsubscribe { pkid, topics: filters }))
    }

    pub(super) fn ping(&mut self) -> Result<(), Ended> {
        self.is_pinged = true;
        self.next_ping = Instant::now() + KEEP_ALIVE;
        self.write(&Packet::PingReq)
    }

    /// Returns the broker's next answer, or `Other` after reading or writing something. Nothing is lost if
    /// this is not awaited to its end.
    ///
    /// # Errors
    /// `Silent` if the broker answers no ping for [`KEEP_ALIVE`], or acknowledges none of the messages for
    /// [`PATIENCE`].
    pub(super) async fn next(&mut self) -> Result<Answer, Ended> {
        let now = Instant::now();
        if now >= self.next_ping {
            if self.is_pinged {
                return Err(Ended::Silent);
            }
            self.ping()?;
        }
        let patience = (!self.unanswered.is_empty()).then(|| self.waits_since + PATIENCE);
        // Checked before the next packet: a broker may send other packets for ever and never acknowledge.
        if patience.is_some_and(|until| now >= until) {
            return Err(Ended::Silent);
        }
        if let Some(packet) = self.packet()? {
            return self.answer(packet);
        }
        let until = patience.map_or(self.next_ping, |until| until.min(self.next_ping));
        self.transfer(until).await?;
        Ok(Answer::Other)
    }

    /// Disconnects; then the broker publishes no last will.
    pub(super) async fn close(mut self) {
        let _ = self.write(&Packet::Disconnect);
        let written = async {
            self.writer.write_all_buf(&mut self.unsent).await?;
            self.writer.shutdown().await
        };
        let _ = timeout(CONNECTING, written).await;
    }

    fn answer(&mut self, packet: Packet) -> Result<Answer, Ended> {
        Ok(match packet {
            Packet::PubAck(answer) => {
                self.waits_since = Instant::now();
                self.unanswered.remove(&answer.pkid).map_or(Answer::Other, Answer::Acknowledged)
            }
            Packet::Publish(found) if found.retain => Answer::Retains(found.topic, found.payload),
            Packet::SubAck(answer) => {
                Answer::Subscribed(!answer.return_codes.contains(&SubscribeReasonCode::Failure))
            }
            Packet::PingResp => {
                self.is_pinged = false;
                Answer::Pong
            }
            Packet::ConnAck(_) => return Err(Ended::Protocol(mqttbytes::Error::IncorrectPacketFormat)),
            _ => Answer::Other,
        })
    }

    /// Returns a number that no unanswered packet has: there are more numbers than such packets.
    fn next_packet(&mut self) -> u16 {
        loop {
            self.packet = self.packet.checked_add(1).unwrap_or(1);
            if !self.unanswered.contains_key(&self.packet) {
                return self.packet;
            }
        }
    }

    fn write(&mut self, packet: &Packet) -> Result<(), Ended> {
        packet.write(&mut self.unsent, usize::MAX)?;
        Ok(())
    }

    /// The next packet that was received completely.
    fn packet(&mut self) -> Result<Option<Packet>, Ended> {
        loop {
            let now = self.skipped.min(self.received.len());
            self.received.advance(now);
            self.skipped -= now;
            if self.skipped > 0 {
                return Ok(None);
            }
            match Packet::read(&mut self.received, MAX_PACKET) {
                Ok(packet) => return Ok(Some(packet)),
                Err(mqttbytes::Error::InsufficientBytes(_)) => return Ok(None),
                Err(mqttbytes::Error::PayloadSizeLimitExceeded(rest)) => {
                    // The first byte, then up to four with the length; the last one has no high bit.
                    let length = self.received.iter().skip(1).take_while(|byte| **byte >= 0x80).count();
                    self.skipped = 1 + length + 1 + rest;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until it has read or written something.
    async fn transfer(&mut self, until: Instant) -> Result<(), Ended> {
        let (has_unsent, is_flushed) = (!self.unsent.is_empty(), self.is_flushed);
        let output = async {
            if has_unsent {
                self.writer.write_buf(&mut self.unsent).await?;
            } else {
                self.writer.flush().await?;
            }
            Ok::<_, io::Error>(())
        };
        self.received.reserve(READ_SIZE);
        // Not biased: a broker that always sends must not stop writes, and one that always receives must not
        // stop reads.
        tokio::select! {
            read = self.reader.read_buf(&mut self.received) => {
                if read? == 0 {
                    return Err(Ended::Closed);
                }
            }
            written = output, if has_unsent || !is_flushed => {
                written?;
                self.is_flushed = !has_unsent;
            }
            () = sleep_until(until) => {}
        }
        Ok(())
    }
}
