//! The end of a run: faults stop, everything on its way arrives, and everybody must have everything.

use std::collections::VecDeque;
use std::time::Duration;

use super::World;

impl World {
    /// All faults stop; everything comes to rest; everybody has everything.
    pub fn come_to_rest(&mut self) {
        self.start_server();
        for round in 0..4000 {
            self.flush();
            if self.is_at_rest() {
                self.flush(); // what was said last is still to be delivered
                self.readers_come_to_rest();
                self.flush();
                break;
            }
            assert!(round < 3999, "P11: the world does not come to rest");
            self.now = self.now + Duration::from_millis(500);
            self.time_passes();
        }
        self.check_everything();
    }

    fn readers_come_to_rest(&mut self) {
        for connection in 1..=self.last_connection {
            let (server, mut around) = self.around();
            let Some(server) = server else { return };
            while server.reader_moves(connection, &mut around) {}
        }
    }

    /// Everything that is on its way arrives, in no particular order.
    fn flush(&mut self) {
        for _ in 0..50 {
            for _ in 0..20 {
                self.reader_moves();
                self.commit();
            }
            for connection in self.up.keys().copied().collect::<Vec<_>>() {
                self.deliver_up(connection);
            }
            for app in 0..self.apps.len() {
                while self.deliver_down(app) {}
            }
            for _ in 0..self.apps.len() {
                self.agent_speaks();
            }
        }
    }

    fn is_at_rest(&self) -> bool {
        let no_work =
            |record: &rejoin_core::record::Record| !record.is_active() || !record.has_work();
        let sessions = self.disk.sessions.values().all(|session| no_work(&session.record()));
        let answered = self.apps.iter().all(|app| app.stopped || !app.waits_for_answers());
        let connected = (0..self.apps.len())
            .all(|app| self.apps[app].stopped || self.connections.contains_key(&app));
        let up = self.up.values().all(VecDeque::is_empty);
        sessions && answered && connected && up && self.disk.is_calm()
    }

    fn check_everything(&mut self) {
        if let Some(server) = &self.server {
            server.check_readers(&self.disk);
        }
        for (number, app) in self.apps.iter().enumerate() {
            let Some(server) = &self.server else { return };
            let Some(connection) = self.connections.get(&number) else { continue };
            let Some(id) = server.session_of(*connection).cloned() else { continue };
            let Some(session) = self.disk.sessions.get(&id) else { continue };
            if app.stopped || app.session.as_ref() != Some(&id) {
                continue;
            }
            self.judge.caught_up(app.seen(), &session.record(), &id);
            for body in app.accepted() {
                let text = String::from_utf8_lossy(body);
                let settled = self.judge.is_settled(body);
                assert!(settled, "P12: {text} was accepted and never dealt with");
            }
        }
    }
}
