// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to the ACM service that is asked for paths.

use std::collections::BTreeMap;

use mio::Registry;

use super::Daemon;
use super::token::Token;
use crate::config;
use crate::io::acm_stream::{AcmStream, Opening, Place};
use crate::source::acm::{AcmClient, Action};

/// The client and its connections.
#[derive(Debug)]
pub(super) struct AcmLinks {
    config: config::AcmClient,
    /// The TCP port at which this daemon serves ACM itself.
    own_port: Option<u16>,
    pub(super) client: AcmClient,
    streams: BTreeMap<usize, AcmStream>,
    place: Option<Place>,
}

impl AcmLinks {
    /// No connection yet.
    pub(super) fn new(config: &config::AcmClient, own_port: Option<u16>) -> Self {
        Self {
            client: AcmClient::new(config.connections, config.timeout()),
            config: config.clone(),
            own_port,
            streams: BTreeMap::new(),
            place: None,
        }
    }

    /// The configuration it works by.
    pub(super) fn config(&self) -> &config::AcmClient {
        &self.config
    }

    /// This daemon serves ACM at another TCP port, or at none.
    pub(super) fn set_own_port(&mut self, port: Option<u16>) {
        self.own_port = port;
    }

    fn act(&mut self, registry: &Registry, action: Action) {
        match action {
            Action::Connect(number) => self.connect(registry, number),
            Action::Send(number, bytes) => {
                let sent = self.streams.get_mut(&number).map(|link| link.send(&bytes));
                if let Some(Err(error)) = sent {
                    tracing::debug!(%error, "request to the ACM service not sent");
                    self.lose(number);
                }
            }
            Action::Close(number) => {
                self.streams.remove(&number);
            }
        }
    }

    fn connect(&mut self, registry: &Registry, number: usize) {
        self.streams.remove(&number);
        let own = self.own_port.map(Place::Tcp);
        let places = self.config.places().into_iter();
        for place in places.filter(|place| Some(place) != own.as_ref()) {
            match AcmStream::connect(&place, registry, Token::AcmClient(number as u32).into()) {
                Ok((stream, opening)) => {
                    self.streams.insert(number, stream);
                    self.place = Some(place);
                    if opening == Opening::Open {
                        self.client.handle_open(number);
                    }
                    return;
                }
                Err(error) => tracing::debug!(%place, %error, "no ACM service"),
            }
        }
        self.place = None;
        self.client.handle_closed(number);
    }

    fn lose(&mut self, number: usize) {
        self.streams.remove(&number);
        self.client.handle_closed(number);
    }

    /// A connection is open, or has something to read, or is lost.
    fn ready(&mut self, number: usize) {
        let mut buffer = [0; cm_msgs::acm::MAX_LEN];
        while self.client.is_open(number)
            && let Some(stream) = self.streams.get_mut(&number)
        {
            match stream.receive(&mut buffer) {
                Ok(Some(len)) if len > 0 => self.client.handle_bytes(number, &buffer[..len]),
                Ok(None) => return,
                Ok(Some(_)) => return self.lose(number),
                Err(error) => {
                    tracing::debug!(%error, "connection to the ACM service lost");
                    return self.lose(number);
                }
            }
        }
    }
}

/// Where the service is, for operators.
impl std::fmt::Display for AcmLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}, {} open", self.client.open()),
            None => f.write_str("no service found"),
        }
    }
}

impl Daemon {
    /// A connection to the ACM service has something to tell.
    pub(super) fn acm_ready(&mut self, number: u32) {
        let number = number as usize;
        if self.acm_client.client.is_open(number) {
            return self.acm_client.ready(number);
        }
        let Some(stream) = self.acm_client.streams.get(&number) else {
            return;
        };
        match stream.is_open() {
            Ok(true) => self.acm_client.client.handle_open(number),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "no ACM service");
                self.acm_client.lose(number);
            }
        }
    }

    /// Takes over what the configuration, which was read again, says of the ACM service.
    pub(super) fn reload_acm_client(&mut self) {
        if *self.acm_client.config() != self.config.acm_client {
            self.acm_client.client.abandon();
            self.drain_acm_client();
            self.acm_client = AcmLinks::new(&self.config.acm_client, self.acm_client.own_port);
        }
    }

    /// Talks to the ACM service, and gives its answers to the sources. Whether there were any.
    pub(super) fn drain_acm_client(&mut self) -> bool {
        let now = self.clock.now();
        while let Some(action) = self.acm_client.client.poll_action(now) {
            self.acm_client.act(self.poll.registry(), action);
        }
        let mut any = false;
        while let Some((query, result)) = self.acm_client.client.poll_answer() {
            any = true;
            self.sources.handle_answer(now, query, result);
        }
        any
    }
}
