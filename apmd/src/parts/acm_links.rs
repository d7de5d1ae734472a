// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections to the ACM service that is asked for paths.

use std::collections::BTreeMap;

use cm_msgs::sa::PathRecord;
use mio::Registry;
use statemachine::{PathQuery, QueryError, Time};

use crate::config;
use crate::io::acm_stream::{AcmStream, Opening, Place};
use crate::token::Token;
use paths::source::acm::{self, AcmClient, Action};

/// The client and its connections.
#[derive(Debug)]
pub(crate) struct AcmLinks {
    registry: Registry,
    config: config::AcmClient,
    /// The TCP port at which this daemon serves ACM itself.
    own_port: Option<u16>,
    client: AcmClient,
    streams: BTreeMap<usize, AcmStream>,
    place: Option<Place>,
}

impl AcmLinks {
    /// No connection yet.
    pub(super) fn new(config: &config::AcmClient, registry: Registry) -> Self {
        Self {
            registry,
            client: AcmClient::new(acm::CONNECTIONS, acm::TIMEOUT),
            config: config.clone(),
            own_port: None,
            streams: BTreeMap::new(),
            place: None,
        }
    }

    /// Other settings. What the service was asked that is no longer to be asked.
    pub(super) fn configure(&mut self, config: &config::AcmClient) -> Vec<u32> {
        if self.config == *config {
            return Vec::new();
        }
        self.client.abandon();
        let left = std::iter::from_fn(|| self.client.poll_answer());
        let left = left.map(|(query, _)| query).collect();
        self.client = AcmClient::new(acm::CONNECTIONS, acm::TIMEOUT);
        self.streams.clear();
        self.config = config.clone();
        left
    }

    /// Nobody waits for the answer to this query any more.
    pub(super) fn withdraw(&mut self, query: u32) {
        self.client.withdraw(query);
    }

    pub(super) fn ask(&mut self, query: PathQuery) {
        self.client.ask(query);
    }

    pub(super) fn poll_answer(
        &mut self,
        now: Time,
    ) -> Option<(u32, Result<Vec<PathRecord>, QueryError>)> {
        while let Some(action) = self.client.poll_action(now) {
            self.act(action);
        }
        self.client.poll_answer()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.client.poll_timeout()
    }

    pub(super) fn handle_time(&mut self, now: Time) {
        self.client.handle_time(now);
    }

    /// This daemon serves ACM at another TCP port, or at none.
    pub(super) fn set_own_port(&mut self, port: Option<u16>) {
        self.own_port = port;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect(number) => self.connect(number),
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

    fn connect(&mut self, number: usize) {
        self.streams.remove(&number);
        // The daemon would ask itself, and wait for its own answer.
        let own = self.own_port.map(Place::Tcp);
        let places = self.config.places().into_iter();
        for place in places.filter(|place| Some(place) != own.as_ref()) {
            match AcmStream::connect(
                &place,
                &self.registry,
                Token::AcmClient(number as u32).into(),
            ) {
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
    pub(super) fn handle_ready(&mut self, number: usize) {
        if self.client.is_open(number) {
            return self.receive(number);
        }
        let Some(stream) = self.streams.get(&number) else {
            return;
        };
        match stream.is_open() {
            Ok(true) => self.client.handle_open(number),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "no ACM service");
                self.lose(number);
            }
        }
    }

    fn receive(&mut self, number: usize) {
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
