//! Which addresses a declared name may have (SBX-46).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Watch;
use crate::profile::EgressScope;

/// Why there is no address to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAddress {
    /// Nobody knows the name.
    Unknown,
    /// The name leads somewhere it may not: to this machine, its network, or a place that is none.
    Private,
}

/// Where a declared name leads. All of its addresses must be allowed, or none is taken.
pub(super) async fn resolve(watch: &Watch, scope: &EgressScope) -> Result<Vec<SocketAddr>, NoAddress> {
    let addresses: Vec<IpAddr> = match watch.known.get(&scope.host) {
        Some(known) => known.clone(),
        None => {
            let found = tokio::net::lookup_host((scope.host.as_str(), scope.port)).await;
            found.map_err(|_| NoAddress::Unknown)?.map(|address| address.ip()).collect()
        }
    };
    if addresses.is_empty() {
        return Err(NoAddress::Unknown);
    }
    if addresses.iter().any(|address| !is_global(*address) && !scope.addrs.contains(address)) {
        return Err(NoAddress::Private);
    }
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, scope.port)).collect())
}

/// Whether an address is one host's in the public network.
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_global_v4(address),
        IpAddr::V6(address) => is_global_v6(address),
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || matches!((a, b, c), (0 | 224.., _, _) | (100, 64..=127, _) | (192, 0, 0) | (198, 18 | 19, _)))
}

/// 2000::/3 without what leads back to version 4 or is only for documents.
fn is_global_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    a & 0xe000 == 0x2000 && !matches!((a, b), (0x2001, 0 | 0xdb8) | (0x2002, _))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_hosts_are_global() {
        // SBX-46
        for address in ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "100.63.0.1", "198.20.0.1"] {
            assert!(is_global(address.parse().unwrap()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "127.77.0.1",
            "10.0.0.7",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(!is_global(address.parse().unwrap()), "{address}");
        }
    }
}
