//! A set of ASCII bytes, and finding its members fast.
//!
//! Almost all text that passes the gateway is clean, so what counts is how fast that can be seen. Membership of
//! 32 bytes at once takes two table look-ups: the low half of a byte selects a mask with one bit per possible
//! high half, the high half selects its bit. The vector form is used where the processor has it; the plain form
//! answers the same, and a test holds the two together.

/// A set of ASCII bytes. Bytes above 0x7f are members of no set, but can be asked for besides.
#[derive(Clone)]
pub(crate) struct AsciiSet {
    /// Bit `h` of entry `l` says whether the byte `h << 4 | l` is a member.
    low: [u8; 16],
    member: [bool; 256],
}

/// The bit for each high half; none for bytes above 0x7f.
const HIGH: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 0, 0, 0, 0, 0, 0, 0, 0];

impl AsciiSet {
    pub(crate) fn new(members: impl IntoIterator<Item = u8>) -> Self {
        let mut set = Self { low: [0; 16], member: [false; 256] };
        for byte in members.into_iter().filter(u8::is_ascii) {
            set.low[usize::from(byte & 15)] |= 1 << (byte >> 4);
            set.member[usize::from(byte)] = true;
        }
        set
    }

    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.member[usize::from(byte)]
    }

    /// Whether any byte is a member, and whether any is above 0x7f.
    pub(crate) fn survey(&self, bytes: &[u8]) -> (bool, bool) {
        #[cfg(target_arch = "x86_64")]
        if bytes.len() >= 32 && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as just asked.
            #[expect(
                unsafe_code,
                reason = "a function with a target feature is called after asking for it"
            )]
            return unsafe { avx2::survey(&self.low, &self.member, bytes) };
        }
        self.survey_plainly(bytes)
    }

    fn survey_plainly(&self, bytes: &[u8]) -> (bool, bool) {
        survey_plainly(&self.member, bytes)
    }

    /// Where the members are: calls `found` with each position, in order.
    pub(crate) fn each(&self, bytes: &[u8], found: impl FnMut(usize)) {
        #[cfg(target_arch = "x86_64")]
        if bytes.len() >= 32 && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as just asked.
            #[expect(unsafe_code, reason = "a function with a target feature is called after asking for it")]
            unsafe {
                avx2::each(&self.low, &self.member, bytes, found);
            }
            return;
        }
        each_plainly(&self.member, bytes, 0, found);
    }
}

fn survey_plainly(member: &[bool; 256], bytes: &[u8]) -> (bool, bool) {
    bytes
        .iter()
        .fold((false, false), |(any, high), byte| (any | member[usize::from(*byte)], high | !byte.is_ascii()))
}

fn each_plainly(member: &[bool; 256], bytes: &[u8], from: usize, mut found: impl FnMut(usize)) {
    for (at, byte) in bytes.iter().enumerate() {
        if member[usize::from(*byte)] {
            found(from + at);
        }
    }
}

impl std::fmt::Debug for AsciiSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members = (0..=127u8).filter(|byte| self.contains(*byte)).map(char::from);
        f.debug_set().entries(members).finish()
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
        _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256,
        _mm256_shuffle_epi8, _mm256_srli_epi16,
    };

    const LANE: usize = 32;

    /// The two tables, in registers.
    struct Tables {
        low: __m256i,
        high: __m256i,
    }

    impl Tables {
        #[target_feature(enable = "avx2")]
        fn new(low: &[u8; 16]) -> Self {
            Self { low: twice(low), high: twice(&super::HIGH) }
        }

        /// Non-zero where a byte is a member. A byte above 0x7f looks up zero: `shuffle` gives zero for an index
        /// with the top bit set.
        #[target_feature(enable = "avx2")]
        #[inline]
        fn members(&self, bytes: __m256i) -> __m256i {
            let halves = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(self.low, bytes);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), halves);
            _mm256_and_si256(low, _mm256_shuffle_epi8(self.high, high))
        }
    }

    #[target_feature(enable = "avx2")]
    fn twice(table: &[u8; 16]) -> __m256i {
        // SAFETY: the pointer is to 16 readable bytes; the load needs no alignment.
        #[expect(unsafe_code, reason = "vector loads take pointers")]
        let half = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        _mm256_broadcastsi128_si256(half)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(bytes: &[u8; LANE]) -> __m256i {
        // SAFETY: the pointer is to 32 readable bytes; the load needs no alignment.
        #[expect(unsafe_code, reason = "vector loads take pointers")]
        unsafe {
            _mm256_loadu_si256(bytes.as_ptr().cast())
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn survey(low: &[u8; 16], member: &[bool; 256], bytes: &[u8]) -> (bool, bool) {
        let tables = Tables::new(low);
        let (lanes, rest) = bytes.as_chunks::<LANE>();
        let mut any = _mm256_setzero_si256();
        let mut all = _mm256_setzero_si256();
        for lane in lanes {
            let lane = load(lane);
            any = _mm256_or_si256(any, tables.members(lane));
            all = _mm256_or_si256(all, lane);
        }
        let none = _mm256_movemask_epi8(_mm256_cmpeq_epi8(any, _mm256_setzero_si256())) == -1;
        let (rest_any, rest_high) = super::survey_plainly(member, rest);
        (!none || rest_any, _mm256_movemask_epi8(all) != 0 || rest_high)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn each(low: &[u8; 16], member: &[bool; 256], bytes: &[u8], mut found: impl FnMut(usize)) {
        let tables = Tables::new(low);
        let (lanes, rest) = bytes.as_chunks::<LANE>();
        for (index, lane) in lanes.iter().enumerate() {
            let strangers = _mm256_cmpeq_epi8(tables.members(load(lane)), _mm256_setzero_si256());
            let mut members = !_mm256_movemask_epi8(strangers).cast_unsigned();
            while members != 0 {
                found(index * LANE + members.trailing_zeros() as usize);
                members &= members - 1;
            }
        }
        super::each_plainly(member, rest, lanes.len() * LANE, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_vector_form_answers_as_the_plain_one(
            members in prop::collection::vec(0u8..128, 0..40),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            // GNT-Z10
            let set = AsciiSet::new(members.iter().copied());
            prop_assert_eq!(set.survey(&bytes), set.survey_plainly(&bytes));
            let mut found = Vec::new();
            set.each(&bytes, |at| found.push(at));
            let expected: Vec<_> = (0..bytes.len()).filter(|at| members.contains(&bytes[*at])).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
