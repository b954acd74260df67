/** The rules that lead a pod's traffic into its sidecar, as text for `nft -f -` in the pod's network namespace. */

/** Ports of the sidecar inside the pod (docs/architecture.md, Sidecar). */
export const SIDECAR_PORTS = { outbound: 15001, dns: 15053, dnsTunnel: 15054 } as const;

/**
 * Captures everything that leaves the pod, over IPv4 and IPv6: TCP goes to the listener `outbound` with its original
 * destination kept, UDP port 53 to `dns`, and anything else but neighbour discovery is refused as administratively
 * prohibited, so that a caller learns of it at once. Traffic of the pod with itself stays free. From outside only new
 * TCP connections to the pod's own ports come in, never to those of the sidecar.
 *
 * No process is exempt: the sidecar leaves by UNIX sockets, so not even root of the pod has a way around it. The way to
 * the resolver is the sidecar's alone, user 0 of the namespace's owner: a pod that runs as another user asks over UDP
 * and never has a connection there whose bytes it chooses. The text
 * replaces an earlier version of the table as one transaction; load it before the first process of the pod runs,
 * because connections that exist already are not captured.
 */
export function captureRules(): string {
  const { outbound, dns, dnsTunnel } = SIDECAR_PORTS;
  return `table inet sandgate
delete table inet sandgate
table inet sandgate {
  chain out_nat {
    type nat hook output priority -100; policy accept;
    fib daddr type local return
    meta l4proto tcp redirect to :${outbound}
    udp dport 53 redirect to :${dns}
  }
  chain out_filter {
    type filter hook output priority 0; policy drop;
    tcp dport ${dnsTunnel} meta skuid != 0 reject with tcp reset
    fib daddr type local accept
    ct status dnat accept
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept
    reject with icmpx type admin-prohibited
  }
  chain in_filter {
    type filter hook input priority 0; policy drop;
    iif "lo" accept
    ct state established,related accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept
    meta l4proto tcp tcp dport != { ${outbound}, ${dnsTunnel} } ct state new accept
  }
  chain forward_filter {
    type filter hook forward priority 0; policy drop;
  }
}
`;
}
