//! A direct implementation of the sharing rules: every operation walks over all tenants.

use throttlekit_core::Timestamp;
use throttlekit_core::fair::GiveBack;

use super::FairScenario;
use super::scenario::WINDOW;
use super::seeded::Bug;

/// The factor by which weights are multiplied, so that a weight of one can shrink.
const SCALE: u64 = 64;
const PARTS: u64 = 8;
/// The number of past windows that are remembered.
const LEFT_MAX: usize = 8;

/// The tenants of a window and their use. The judge keeps one and records admissions in it. A rule with a
/// seeded bug is one that decides on its own and keeps wrong books.
#[derive(Clone, Debug)]
pub struct Books {
    /// Units in a window.
    pub limit: u64,
    /// The occupied slots. Freed slots are reused, the last first.
    pub places: Vec<Option<Place>>,
    pub(super) bug: Option<Bug>,
    free: Vec<usize>,
    pub(super) places_max: usize,
    give_back: Option<GiveBack>,
    window: u64,
    /// Past windows with use, and their use.
    left_windows: Vec<(u64, u64)>,
    /// The latest past window that is forgotten.
    forgotten: u64,
    /// The use of this window before it began again.
    before: u64,
    latest: Timestamp,
    /// Units that a bug has removed from the books, or added to them.
    pub(super) stray: i128,
}

/// A tenant in its slot.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The tenant.
    pub tenant: usize,
    /// Its full weight.
    pub weight: u64,
    /// The number of [`SCALE`] parts of it that count.
    pub(super) keeps: u64,
    /// Its use, including that of the previous tenant of the slot.
    pub used: u64,
    asked_at: Timestamp,
    given: u64,
}

impl Books {
    /// Creates the initial books of a scenario.
    pub fn new(scenario: &FairScenario, bug: Option<Bug>) -> Self {
        Self {
            limit: scenario.limit,
            places: Vec::new(),
            bug,
            free: Vec::new(),
            places_max: scenario.places,
            give_back: scenario.give_back,
            window: 0,
            left_windows: Vec::new(),
            forgotten: 0,
            before: 0,
            latest: Timestamp::EPOCH,
            stray: 0,
        }
    }

    /// Moves to `now`: to another window, or past the times at which quiet tenants return parts.
    pub fn advance(&mut self, now: Timestamp) {
        let window = now.as_nanos() / WINDOW.as_nanos() as u64;
        let moved = match self.bug {
            Some(Bug::WindowBack) => window != self.window,
            Some(Bug::StaysAhead) => window > self.window,
            _ => window > self.window || window + 1 < self.window,
        };
        if moved {
            self.before = self.leave_for(window);
            self.window = window;
            self.begin();
            self.latest = now;
        } else {
            self.latest = self.latest.max(now);
            self.give_back();
        }
    }

    /// Remembers the use of this window. Returns the remembered use of another.
    fn leave_for(&mut self, window: u64) -> u64 {
        let at = self.left_windows.iter().position(|(left, _)| *left == window);
        let returns_fresh = matches!(self.bug, Some(Bug::WindowBack | Bug::FreshOnReturn));
        let forgives = matches!(self.bug, Some(Bug::ForgottenIsFresh | Bug::RemembersOneWindow));
        let before = match at.map(|at| self.left_windows.remove(at).1) {
            Some(used) if !returns_fresh => used,
            None if window <= self.forgotten && !returns_fresh && !forgives => self.limit,
            _ => 0,
        };
        let used = self.before + self.used();
        if used > 0 {
            self.left_windows.push((self.window, used));
            self.left_windows.sort_unstable();
        }
        let left_max = if self.bug == Some(Bug::RemembersOneWindow) { 1 } else { LEFT_MAX };
        if self.left_windows.len() > left_max {
            self.forgotten = self.forgotten.max(self.left_windows.remove(0).0);
        }
        before
    }

    fn begin(&mut self) {
        self.stray = 0;
        if self.bug == Some(Bug::TenantsStay) {
            self.seated_mut().for_each(|place| place.used = 0);
            return;
        }
        self.places.clear();
        self.free.clear();
    }

    /// Returns the part of the limit that is shared.
    pub fn shared(&self) -> u64 {
        self.limit.saturating_sub(self.before)
    }

    /// Returns the end of the window.
    pub fn end(&self) -> Timestamp {
        Timestamp::from_nanos((self.window + 1) * WINDOW.as_nanos() as u64)
    }

    /// Returns the slot of a tenant that requests at this weight; assigns one if it has none.
    pub fn fixture(&mut self, tenant: usize, weight: u64) -> usize {
        let known = self.place_of(tenant);
        let place = known.unwrap_or_else(|| self.find_place(tenant, weight));
        let (bug, latest) = (self.bug, self.latest);
        let seated = self.at_mut(place);
        if bug == Some(Bug::WeightRefunds) && seated.weight != weight {
            seated.used = 0;
        }
        if bug != Some(Bug::WeightKept) {
            seated.weight = weight;
        }
        if bug != Some(Bug::NeverWakes) || known.is_none() {
            seated.keeps = SCALE;
        }
        if bug != Some(Bug::QuietWhileDenied) || known.is_none() {
            (seated.asked_at, seated.given) = (latest, 0);
        }
        place
    }

    /// Finds a slot for a new tenant: a free one, or that of the tenant with the smallest use.
    pub(super) fn find_place(&mut self, tenant: usize, weight: u64) -> usize {
        let fresh = Place { tenant, weight, keeps: SCALE, used: 0, asked_at: self.latest, given: 0 };
        if self.seated().count() < self.places_max {
            let place = self.free.pop().unwrap_or(self.places.len());
            self.places.resize(self.places.len().max(place + 1), None);
            self.places[place] = Some(fresh);
            return place;
        }
        let least = (0..self.places.len()).filter(|&place| self.places[place].is_some());
        let least = match self.bug {
            Some(Bug::MostUsedLoses) => least.max_by_key(|&place| self.at(place).used),
            _ => least.min_by_key(|&place| self.at(place).used),
        };
        let least = least.expect("a scenario has at least one place");
        let used = match self.bug {
            Some(Bug::EvictionRefunds) => 0,
            Some(Bug::EvictionForgives) => {
                self.stray += i128::from(self.at(least).used);
                0
            }
            _ => self.at(least).used,
        };
        self.places[least] = Some(Place { used, ..fresh });
        least
    }

    /// Forgets a tenant and its use.
    pub fn reset(&mut self, tenant: usize) -> u64 {
        let Some(place) = self.place_of(tenant) else { return 0 };
        self.free.push(place);
        self.places[place].take().map_or(0, |place| place.used)
    }

    /// Refunds units to the window that ends at `reset_at`, if it is this one. Returns the number of units.
    pub fn refund(&mut self, tenant: usize, units: u64, reset_at: Timestamp) -> u64 {
        let (known, bug) = (self.place_of(tenant), self.bug);
        let lasts = self.end() == reset_at || bug == Some(Bug::RefundOfAnyWindow);
        let Some(place) = known.filter(|_| lasts && bug != Some(Bug::RefundForgotten)) else { return 0 };
        let back = units.min(self.at(place).used);
        self.at_mut(place).used -= back;
        let quiet = self.at(place).given > 0 && bug != Some(Bug::RefundStaysCovered);
        if let Some(by) = self.give_back.filter(|_| quiet) {
            self.shrink(by, place);
        }
        back
    }

    /// Charges units to the tenant in the slot.
    pub fn charge(&mut self, place: usize, cost: u64) {
        let latest = self.latest;
        let seated = self.at_mut(place);
        seated.used += cost;
        (seated.asked_at, seated.given) = (latest, 0);
    }

    /// Returns the guarantee of the slot.
    pub fn guarantee(&self, place: usize) -> u64 {
        self.guarantee_of(self.at(place), self.weights())
    }

    fn weights(&self) -> u128 {
        self.seated().map(|(_, place)| place.shared()).sum()
    }

    fn guarantee_of(&self, place: &Place, weights: u128) -> u64 {
        let own = place.shared();
        let limit = u128::from(self.shared());
        let exact = own * limit / weights;
        let guarantee = match self.bug {
            Some(Bug::DividesFirst) => own * (limit / weights),
            Some(Bug::WeightIgnored) => limit / self.seated().count() as u128,
            _ => exact,
        };
        guarantee as u64
    }

    /// Returns the unused part of the slot's guarantee.
    pub fn unused(&self, place: usize) -> u64 {
        self.guarantee(place).saturating_sub(self.at(place).used)
    }

    /// Returns the units reserved for all other tenants.
    pub fn reserved_for_others(&self, place: usize) -> u64 {
        let weights = self.weights();
        let reserve = |other: &Place| {
            let promised = self.guarantee_of(other, weights);
            match self.bug {
                Some(Bug::ReserveUnder) => promised.saturating_sub(other.used).saturating_sub(1),
                Some(Bug::ReserveOver) => (promised + 1).saturating_sub(other.used),
                _ => promised.saturating_sub(other.used),
            }
        };
        let others = self.seated().filter(|(other, _)| *other != place).map(|(_, other)| reserve(other));
        let own = if self.bug == Some(Bug::OwnReserved) { self.unused(place) } else { 0 };
        others.sum::<u64>() + own
    }

    /// Returns the total use since the window began, or began again.
    pub fn used(&self) -> u64 {
        let used: i128 = self.seated().map(|(_, place)| i128::from(place.used)).sum();
        u64::try_from(used + self.stray).unwrap_or(0)
    }

    /// Returns the unused units.
    pub fn left(&self) -> u64 {
        self.shared().saturating_sub(self.used())
    }

    /// Returns the units that the slot could take without touching the reservations of others.
    pub fn borrowable(&self, place: usize) -> u64 {
        self.left().saturating_sub(self.reserved_for_others(place))
    }

    /// Applies the rule.
    pub fn admits(&self, place: usize, cost: u64) -> bool {
        let (used, guarantee) = (self.at(place).used, self.guarantee(place));
        let borrows = match self.bug {
            Some(Bug::CountedTwice) => (used + cost).saturating_sub(guarantee) <= self.borrowable(place),
            Some(Bug::BorrowsAgain) => cost <= self.borrowable(place),
            Some(Bug::NeverBorrows) => false,
            _ => used <= guarantee && cost <= self.borrowable(place),
        };
        let fits = cost <= self.left() || self.bug == Some(Bug::GuaranteeAboveAll);
        fits && (used + cost <= guarantee || cost <= self.left() && borrows)
    }

    /// Returns the maximum that the slot could take at once.
    pub fn admissible(&self, place: usize) -> u64 {
        let (used, guarantee) = (self.at(place).used, self.guarantee(place));
        if used > guarantee {
            return 0;
        }
        (guarantee - used).min(self.left()).max(self.borrowable(place))
    }

    /// Returns the slot of a tenant.
    pub fn place_of(&self, tenant: usize) -> Option<usize> {
        self.seated().find(|(_, place)| place.tenant == tenant).map(|(place, _)| place)
    }

    /// Returns all tenants with a slot.
    pub fn seated(&self) -> impl Iterator<Item = (usize, &Place)> + Clone {
        self.places.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?)))
    }

    /// Returns the tenant in this slot.
    pub fn at(&self, place: usize) -> &Place {
        self.places[place].as_ref().expect("someone has the place")
    }

    fn at_mut(&mut self, place: usize) -> &mut Place {
        self.places[place].as_mut().expect("someone has the place")
    }

    fn seated_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.places.iter_mut().flatten()
    }

    /// Lets every quiet tenant return its parts, in the order in which they fall due.
    fn give_back(&mut self) {
        let Some(by) = self.give_back else { return };
        let mut due: Vec<(Timestamp, usize)> = Vec::new();
        for (place, seated) in self.seated() {
            let next = self.due(by, seated.asked_at, seated.given + 1);
            if seated.given < PARTS && next <= self.latest {
                due.push((next, place));
            }
        }
        due.sort_unstable();
        due.into_iter().for_each(|(_, place)| self.shrink(by, place));
    }

    fn due(&self, by: GiveBack, asked_at: Timestamp, part: u64) -> Timestamp {
        let part = match self.bug {
            Some(Bug::PartEarly) => part - 1,
            Some(Bug::PartLate) => part + 1,
            _ => part,
        };
        let over = (by.over.as_nanos() as u64 * part).div_ceil(PARTS);
        let late = u64::from(self.bug == Some(Bug::NanoLate));
        let early = u64::from(self.bug == Some(Bug::NanoEarly));
        let nanos = asked_at.as_nanos() + by.quiet_after.as_nanos() as u64 + over + late;
        Timestamp::from_nanos(nanos.saturating_sub(early))
    }

    fn shrink(&mut self, by: GiveBack, place: usize) {
        let Place { used, keeps, asked_at, .. } = *self.at(place);
        let parts =
            (1..=PARTS).take_while(|&part| self.due(by, asked_at, part) <= self.latest).count() as u64;
        let wants = (SCALE / PARTS * (PARTS - parts)).max(1);
        // The minimum that still guarantees its use.
        let covers = |parts: u64| {
            let mut books = self.clone();
            books.at_mut(place).keeps = parts;
            books.guarantee(place) >= used
        };
        let enough = (1..=keeps).find(|&parts| covers(parts)).unwrap_or(keeps);
        let bug = self.bug;
        let seated = self.at_mut(place);
        seated.given = parts;
        seated.keeps = if bug == Some(Bug::UseUncovered) { wants } else { wants.max(enough).min(keeps) };
        if bug == Some(Bug::UseGivenBack) && parts == PARTS {
            seated.used = 0;
        }
    }
}

impl Place {
    /// Returns its weight within the shared part, comparable to the others'.
    pub(super) fn shared(&self) -> u128 {
        u128::from(self.weight) * u128::from(self.keeps)
    }
}
