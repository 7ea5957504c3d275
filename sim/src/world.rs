//! Who acts next: one seed decides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rejoin_core::client::{ClientCommand, Input, Secret, ServerEvent};
use rejoin_core::keys::KeyRing;
use rejoin_core::{Principal, Timestamp};

use crate::client::{App, Wish};
use crate::disk::Disk;
use crate::judge::{Counts, Judge};
use crate::random::Random;
use crate::server::{Around, Down, Server, keys};
use crate::villain;

mod rest;

/// Everything there is.
pub struct World {
    random: Random,
    now: Timestamp,
    keys: KeyRing,
    disk: Disk,
    judge: Judge,
    server: Option<Server>,
    apps: Vec<App>,
    /// Each app's connection, while it believes that it has one.
    connections: BTreeMap<usize, u64>,
    /// Frames on their way to the server. Those of a connection that the client has given up may
    /// still arrive.
    up: BTreeMap<u64, VecDeque<ClientCommand>>,
    /// Tokens that clients have shown.
    shown: Vec<Secret>,
    /// Connections on which the network has lost a frame in the middle.
    holed: BTreeSet<u64>,
    last_connection: u64,
    trace: u64,
}

impl World {
    /// A world in which `apps` applications use one server. Two of them share a principal.
    pub fn new(seed: u64, apps: usize) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            now: Timestamp::from_millis(1_800_000_000_000),
            keys: keys(),
            disk: Disk::default(),
            judge: Judge::default(),
            server: None,
            apps: Vec::new(),
            connections: BTreeMap::new(),
            up: BTreeMap::new(),
            shown: Vec::new(),
            holed: BTreeSet::new(),
            last_connection: 0,
            trace: seed,
        };
        for number in 0..apps {
            let principal = Principal::new(&format!("p{}", number / 2));
            world.apps.push(App::new(number, principal));
        }
        world.start_server();
        for number in 0..apps {
            world.tell(number, Input::Tick);
        }
        world
    }

    /// Lets chance act so many times.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    /// What happened.
    pub fn counts(&self) -> Counts {
        self.judge.counts
    }

    /// A fingerprint of the whole run: the same for the same seed.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    fn step(&mut self) {
        let choice = self.random.below(100);
        self.trace = self.trace.rotate_left(5) ^ (choice as u64).wrapping_mul(0x9e37_79b9);
        match choice {
            0..=19 => self.commit(),
            20..=37 => self.frame_to_server(),
            38..=47 => self.reader_moves(),
            48..=57 => self.frame_to_client(),
            58..=72 => self.agent_speaks(),
            73..=80 => self.app_speaks(),
            81..=86 => {
                let millis = [1, 50, 400, 2_000][self.random.below(4)];
                self.now = self.now + Duration::from_millis(millis);
                self.time_passes();
            }
            87..=89 => self.cut(),
            90..=92 => self.villain(),
            93 => self.hang_up_dead(),
            94 => self.kill_agent(),
            95..=97 => self.now_and_then(),
            98 => self.crash_or_start(),
            _ => self.reload(),
        }
    }

    /// What happens less often than once in a hundred steps.
    fn now_and_then(&mut self) {
        match self.random.below(25) {
            0 => {
                // A long absence: parked sessions expire, tokens and states grow old.
                let minutes = [6, 16, 35, 70][self.random.below(4)];
                if self.random.one_in(2) {
                    self.everybody_leaves();
                }
                self.now = self.now + Duration::from_secs(60 * minutes);
                self.time_passes();
            }
            1 if self.server.is_none() => self.lose_tail(),
            2 => self.end_session(),
            4..=11 => self.mangle_frame(),
            3 => self.request_state(),
            _ => {}
        }
    }

    fn around(&mut self) -> (Option<&mut Server>, Around<'_>) {
        let around = Around {
            disk: &mut self.disk,
            judge: &mut self.judge,
            random: &mut self.random,
            keys: &self.keys,
            now: self.now,
        };
        (self.server.as_mut(), around)
    }

    fn start_server(&mut self) {
        if self.server.is_none() {
            let (_, mut around) = self.around();
            let server = Server::start(&mut around);
            self.server = Some(server);
        }
        let (server, mut around) = self.around();
        if let Some(server) = server {
            server.wake_workers(&mut around);
        }
    }

    fn crash_or_start(&mut self) {
        if self.server.take().is_none() {
            return self.start_server();
        }
        self.judge.counts.crashes += 1;
        self.disk.crash(&mut self.random, self.now, &mut self.judge);
        self.up.clear();
        for app in self.connections.keys().copied().collect::<Vec<_>>() {
            self.lose_connection(app);
        }
    }

    fn commit(&mut self) {
        let Some((id, reply)) = self.disk.commit_one(self.now, &mut self.judge) else { return };
        let (server, mut around) = self.around();
        if let Some(server) = server {
            for changed in std::mem::take(&mut around.disk.changed) {
                server.session_changed(&changed);
            }
            server.replied(&id, reply, &mut around);
        }
    }

    fn frame_to_server(&mut self) {
        let waiting: Vec<u64> =
            self.up.iter().filter(|(_, frames)| !frames.is_empty()).map(|(id, _)| *id).collect();
        let Some(connection) = pick(&waiting, &mut self.random) else { return };
        self.deliver_up(connection);
    }

    fn deliver_up(&mut self, connection: u64) {
        let Some(frame) = self.up.get_mut(&connection).and_then(VecDeque::pop_front) else {
            return;
        };
        if let ClientCommand::Reconnect { token: Some(token), .. } = &frame {
            self.shown.push(token.clone());
        }
        let hole = matches!(frame, ClientCommand::Ack { gap_detected: true, .. });
        if hole && !self.holed.remove(&connection) {
            self.judge.unexplained_hole();
        }
        let (server, mut around) = self.around();
        if let Some(server) = server {
            server.receive(connection, frame, &mut around);
        }
    }

    fn frame_to_client(&mut self) {
        let connected: Vec<usize> = self.connections.keys().copied().collect();
        if let Some(app) = pick(&connected, &mut self.random) {
            self.deliver_down(app);
        }
    }

    /// Takes one frame to an app; says whether there was one.
    fn deliver_down(&mut self, app: usize) -> bool {
        let Some(connection) = self.connections.get(&app).copied() else { return false };
        let Some(server) = &mut self.server else { return false };
        let Some(end) = server.connection(connection) else {
            self.lose_connection(app);
            return true;
        };
        match end.outbox.pop_front() {
            Some(Down::Event(event)) => {
                self.tell(app, Input::Received(event));
                true
            }
            Some(Down::Close(code)) => {
                self.forget_connection(app);
                let random = self.random.next() as u32;
                self.tell(app, Input::Closed { code: Some(code), retry_after: None, random });
                true
            }
            None => {
                let (server, mut around) = self.around();
                if let Some(server) = server {
                    server.drained(connection, &mut around);
                }
                false
            }
        }
    }

    /// Something that is on its way to a client's reader arrives, if it has one.
    fn reader_moves(&mut self) {
        let connected: Vec<u64> = self.connections.values().copied().collect();
        let Some(connection) = pick(&connected, &mut self.random) else { return };
        let (server, mut around) = self.around();
        let moved = server.is_some_and(|server| server.reader_moves(connection, &mut around));
        if !moved {
            self.frame_to_client();
        }
    }

    fn agent_speaks(&mut self) {
        let Some(server) = &self.server else { return };
        let ids = server.session_ids();
        let Some(id) = pick(&ids, &mut self.random) else { return };
        let (server, mut around) = self.around();
        if let Some(server) = server {
            server.agent_speaks(&id, &mut around);
        }
    }

    fn kill_agent(&mut self) {
        let Some(server) = &self.server else { return };
        let ids = server.session_ids();
        let Some(id) = pick(&ids, &mut self.random) else { return };
        let (server, mut around) = self.around();
        if let Some(server) = server {
            server.kill_agent(&id, &mut around);
        }
    }

    fn app_speaks(&mut self) {
        let app = self.random.below(self.apps.len());
        let now = self.now;
        self.apps[app].say_something(now, &mut self.judge);
        self.grant_wishes(app);
    }

    fn reload(&mut self) {
        let app = self.random.below(self.apps.len());
        if self.random.one_in(3) {
            let now = self.now;
            self.forget_connection(app);
            let only_snapshot = self.random.one_in(2);
            self.apps[app].reload(only_snapshot, now, &mut self.judge);
            if !self.connections.contains_key(&app) && !self.apps[app].stopped {
                self.tell(app, Input::Wake);
            }
            self.grant_wishes(app);
        }
    }

    /// Something between server and client loses an event, or sends it twice. TCP does not do that;
    /// proxies and bugs do, and a client must neither skip nor double for it.
    fn mangle_frame(&mut self) {
        let connected: Vec<u64> = self.connections.values().copied().collect();
        let Some(connection) = pick(&connected, &mut self.random) else { return };
        let twice = self.random.one_in(2);
        let Some(server) = &mut self.server else { return };
        let Some(end) = server.connection(connection) else { return };
        if let Some(Down::Event(ServerEvent::Event(event))) = end.outbox.front() {
            if twice {
                let again = Down::Event(ServerEvent::Event(event.clone()));
                end.outbox.push_front(again);
            } else {
                end.outbox.pop_front();
                self.holed.insert(connection);
            }
        }
    }

    fn end_session(&mut self) {
        let app = self.random.below(self.apps.len());
        self.tell(app, Input::End);
    }

    fn request_state(&mut self) {
        let app = self.random.below(self.apps.len());
        self.tell(app, Input::RequestState);
    }

    fn lose_tail(&mut self) {
        let ids: Vec<_> = self
            .disk
            .sessions
            .iter()
            .filter(|(_, session)| session.record().is_active() && session.out.len() > 1)
            .map(|(id, _)| id.clone())
            .collect();
        if let Some(id) = pick(&ids, &mut self.random) {
            self.disk.lose_tail(&id, &mut self.random, &mut self.judge);
        }
    }

    fn villain(&mut self) {
        let ids: Vec<_> = self.disk.sessions.keys().cloned().collect();
        let Some(id) = pick(&ids, &mut self.random) else { return };
        let session = &self.disk.sessions[&id];
        villain::try_session(session, &mut self.random, self.now, &mut self.judge);
        let sessions = &self.disk.sessions;
        villain::restore_another(sessions, &id, &mut self.random, self.now, &mut self.judge);
        if let Some(token) = pick(&self.shown, &mut self.random) {
            villain::replay_token(session, &token, &mut self.random, self.now, &mut self.judge);
        }
        let app = &self.apps[self.random.below(self.apps.len())];
        if let Some(state) = pick(&app.states, &mut self.random) {
            let (random, judge) = (&mut self.random, &mut self.judge);
            villain::forge_state(&self.keys, &app.principal, &state, random, self.now, judge);
        }
    }

    /// A connection breaks. The client notices; the server may only later.
    fn cut(&mut self) {
        let connected: Vec<usize> = self.connections.keys().copied().collect();
        let Some(app) = pick(&connected, &mut self.random) else { return };
        let Some(connection) = self.connections.get(&app).copied() else { return };
        if self.random.one_in(2) {
            self.up.remove(&connection);
            let (server, mut around) = self.around();
            if let Some(server) = server {
                server.hang_up(connection, &mut around);
            }
        }
        self.lose_connection(app);
    }

    /// All connections break at once, as when a building loses power; what the server had been sent
    /// is stored, and nobody hears of it.
    fn everybody_leaves(&mut self) {
        for connection in self.up.keys().copied().collect::<Vec<_>>() {
            self.deliver_up(connection);
        }
        for app in self.connections.keys().copied().collect::<Vec<_>>() {
            self.lose_connection(app);
        }
        self.hang_up_dead();
        while !self.disk.is_calm() {
            self.commit();
        }
    }

    /// The server notices connections that nobody is at the other end of.
    fn hang_up_dead(&mut self) {
        let alive: Vec<u64> = self.connections.values().copied().collect();
        for connection in 1..=self.last_connection {
            if !alive.contains(&connection) {
                self.up.remove(&connection);
                let (server, mut around) = self.around();
                if let Some(server) = server {
                    server.hang_up(connection, &mut around);
                }
            }
        }
    }

    fn lose_connection(&mut self, app: usize) {
        self.forget_connection(app);
        let random = self.random.next() as u32;
        self.tell(app, Input::Closed { code: None, retry_after: None, random });
    }

    fn forget_connection(&mut self, app: usize) {
        self.connections.remove(&app);
    }

    fn time_passes(&mut self) {
        for app in 0..self.apps.len() {
            if self.apps[app].next_deadline().is_some_and(|at| at <= self.now) {
                self.tell(app, Input::Tick);
            }
        }
        let (server, mut around) = self.around();
        if let Some(server) = server {
            server.tick(&mut around);
            server.reap(&mut around);
            server.hook_decides(&mut around);
            server.wake_workers(&mut around);
        }
    }

    fn tell(&mut self, app: usize, input: Input) {
        let now = self.now;
        self.apps[app].happened(input, now, &mut self.judge);
        self.grant_wishes(app);
    }

    fn grant_wishes(&mut self, app: usize) {
        while let Some(wish) = self.apps[app].next_wish() {
            match wish {
                Wish::Connect => self.connect(app),
                Wish::Send(frame) => {
                    if let Some(connection) = self.connections.get(&app) {
                        self.up.entry(*connection).or_default().push_back(frame);
                    }
                }
                Wish::Close => {
                    self.forget_connection(app);
                    let random = self.random.next() as u32;
                    let closed = Input::Closed { code: None, retry_after: None, random };
                    let now = self.now;
                    self.apps[app].happened(closed, now, &mut self.judge);
                }
            }
        }
    }

    fn connect(&mut self, app: usize) {
        let now = self.now;
        let Some(server) = &mut self.server else {
            let random = self.random.next() as u32;
            return self.apps[app].happened(Input::ConnectFailed { random }, now, &mut self.judge);
        };
        self.last_connection += 1;
        server.open(self.last_connection, self.apps[app].principal.clone());
        self.connections.insert(app, self.last_connection);
        self.apps[app].happened(Input::Opened, now, &mut self.judge);
    }
}

fn pick<T: Clone>(from: &[T], random: &mut Random) -> Option<T> {
    if from.is_empty() { None } else { Some(from[random.below(from.len())].clone()) }
}
