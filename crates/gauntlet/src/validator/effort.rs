//! The budget of one validation (GNT-S5).

use std::time::Duration;

use portcullis_core::clock::thread_time as spent;

/// How many visits of schema nodes one validation may take.
const MAX_VISITS: u32 = 2_000_000;
/// How often the clock is looked at, in visits.
const CLOCK_EVERY: u32 = 4_096;
/// How long one validation may keep a processor busy.
const MAX_TIME: Duration = Duration::from_millis(100);
/// How many nodes may be under evaluation inside each other. The deepest value and several references per level are
/// far below; what is above would use up a thread's stack.
const MAX_NESTING: u16 = 1_000;

/// The budget is used up. The value is refused, and nothing is known about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// What is left of a budget.
///
/// The number of visits is what counts: it is the same on every machine and every run. The clock is a second line for
/// visits that cost more than they should; it can only refuse. It counts this thread's own time, so that a busy machine
/// refuses nothing it would not refuse otherwise.
#[derive(Debug)]
pub(crate) struct Effort {
    left: u32,
    nesting: u16,
    /// Read when the first stretch of visits is over: most validations are long done by then.
    started: Option<Duration>,
}

impl Default for Effort {
    fn default() -> Self {
        Self { left: MAX_VISITS, nesting: 0, started: None }
    }
}

impl Effort {
    /// Pays for one visit.
    pub(super) fn visit(&mut self) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(1).ok_or(Exhausted)?;
        if self.left.is_multiple_of(CLOCK_EVERY) { self.look_at_the_clock() } else { Ok(()) }
    }

    /// Pays for work that grows with a value: `amount` bytes, members or values, at `per` for the price of a visit.
    pub(super) fn spend(&mut self, amount: usize, per: usize) -> Result<(), Exhausted> {
        let price = u32::try_from(amount / per).map_err(|_| Exhausted)?;
        let before = self.left;
        self.left = before.checked_sub(price).ok_or(Exhausted)?;
        if before / CLOCK_EVERY == self.left / CLOCK_EVERY { Ok(()) } else { self.look_at_the_clock() }
    }

    /// Enters a node.
    pub(super) fn enter(&mut self) -> Result<(), Exhausted> {
        self.visit()?;
        self.nesting += 1;
        if self.nesting > MAX_NESTING { Err(Exhausted) } else { Ok(()) }
    }

    /// Leaves the node entered last.
    pub(super) fn leave(&mut self) {
        self.nesting -= 1;
    }

    #[cold]
    fn look_at_the_clock(&mut self) -> Result<(), Exhausted> {
        let now = spent();
        let started = *self.started.get_or_insert(now);
        if now.saturating_sub(started) > MAX_TIME { Err(Exhausted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_the_same_number_of_visits_every_time() {
        // GNT-S5
        // However slow this machine is.
        let unhurried = || Effort { started: Some(spent() + 1_000 * MAX_TIME), ..Effort::default() };
        let mut effort = unhurried();
        for _ in 0..MAX_VISITS {
            effort.visit().unwrap();
        }
        assert_eq!(effort.visit(), Err(Exhausted));
        let mut effort = unhurried();
        effort.spend(10 * MAX_VISITS as usize, 10).unwrap();
        assert_eq!((effort.visit(), effort.spend(1, 1)), (Err(Exhausted), Err(Exhausted)));
        // Time is up for a budget whose clock is never looked at less often than it should be.
        let mut effort = Effort { started: Some(Duration::ZERO), ..Effort::default() };
        while spent() <= MAX_TIME {
            std::hint::spin_loop();
        }
        assert!((0..=CLOCK_EVERY).any(|_| effort.visit().is_err()), "time is up");
    }
}
