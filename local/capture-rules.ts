/**
 * Rules of a sandbox's network namespace: TCP goes to the sidecar's `outbound` listener, DNS to its `dns` listener,
 * nothing else leaves. The sidecar needs no exemption: it reaches the gateway over a UNIX socket.
 */
export const CAPTURE_RULES = `
table inet sandgate {
  chain out_nat {
    type nat hook output priority -100; policy accept;
    fib daddr type local return
    meta l4proto tcp redirect to :15001
    udp dport 53 redirect to :15053
  }
  chain out_filter {
    type filter hook output priority 0; policy drop;
    fib daddr type local accept
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    meta l4proto tcp ct status dnat accept
    udp dport { 53, 15053 } ct status dnat accept
    reject with icmpx type admin-prohibited
  }
}
`;
