import ipaddr from 'ipaddr.js';

/** A parsed range with its host bits masked: `10.1.2.3/8` is `10.0.0.0/8`. */
export interface AddressRange {
  readonly family: 4 | 6;
  /** Canonical text of the network address. */
  readonly address: string;
  readonly prefix: number;
}

type Parsed = ipaddr.IPv4 | ipaddr.IPv6;

/** Strict forms only: no octal, hexadecimal, short or zoned spelling; IPv4-mapped IPv6 is unmapped. */
function parse(text: string): Parsed | null {
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) {
    return ipaddr.IPv4.parse(text);
  }
  if (!text.includes(':') || text.includes('%') || !ipaddr.IPv6.isValid(text)) {
    return null;
  }
  const address = ipaddr.IPv6.parse(text);
  return address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
}

/** The canonical text of an IPv4 or IPv6 address, or null when it is none. */
export function canonicalAddress(text: string): string | null {
  return parse(text)?.toString() ?? null;
}

/** 4 or 6, or null when the text is no address. */
export function addressFamily(text: string): 4 | 6 | null {
  const address = parse(text);
  return address === null ? null : address.kind() === 'ipv4' ? 4 : 6;
}

/** Parses `address/prefix` or a bare address (a /32 or /128), masks host bits; null when it cannot be parsed (D2). */
export function parseRange(text: string): AddressRange | null {
  const slash = text.indexOf('/');
  const mapped = text.includes(':') && text.includes('.');
  const address = parse(slash < 0 ? text : text.slice(0, slash));
  if (address === null || (mapped && slash >= 0)) {
    return null;
  }
  const bits = address.kind() === 'ipv4' ? 32 : 128;
  const prefixText = slash < 0 ? String(bits) : text.slice(slash + 1);
  if (!/^(0|[1-9][0-9]{0,2})$/.test(prefixText) || Number(prefixText) > bits) {
    return null;
  }
  const prefix = Number(prefixText);
  const bytes = maskBytes(address.toByteArray(), prefix);
  return { family: bits === 32 ? 4 : 6, address: ipaddr.fromByteArray(bytes).toString(), prefix };
}

function maskBytes(bytes: readonly number[], prefix: number): number[] {
  return bytes.map((byte, index) => {
    const kept = Math.min(8, Math.max(0, prefix - index * 8));
    return byte & ((0xff << (8 - kept)) & 0xff);
  });
}

/** Whether the address lies in the range; different families never match. */
export function rangeContains(range: AddressRange, address: string): boolean {
  const parsed = parse(address);
  if (parsed === null || (parsed.kind() === 'ipv4' ? 4 : 6) !== range.family) {
    return false;
  }
  return ipaddr.fromByteArray(maskBytes(parsed.toByteArray(), range.prefix)).toString() === range.address;
}

/** Whether two ranges share an address (one then contains the other). */
export function rangesOverlap(a: AddressRange, b: AddressRange): boolean {
  return a.prefix <= b.prefix ? rangeContains(a, b.address) : rangeContains(b, a.address);
}

/** `address/prefix`. */
export function rangeText(range: AddressRange): string {
  return `${range.address}/${range.prefix}`;
}

/** `ip:port` or `[v6]:port`. */
export function joinHostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

function ranges(...texts: string[]): readonly AddressRange[] {
  return texts.map((text) => parseRange(text)!);
}

/** This host and loopback: refused as captured or resolved destinations (D3). */
export const LOOPBACK_RANGES = ranges('0.0.0.0/8', '127.0.0.0/8', '::/128', '::1/128');

/** Link-local, which holds the metadata service: refused unless a rule names exactly that address (D3). */
export const LINK_LOCAL_RANGES = ranges('169.254.0.0/16', 'fe80::/10');

/** Ranges that a resolved name must not lead to (D3). */
export const PRIVATE_RANGES = [
  ...LOOPBACK_RANGES,
  ...LINK_LOCAL_RANGES,
  ...ranges(
    '10.0.0.0/8',
    '100.64.0.0/10',
    '172.16.0.0/12',
    '192.0.0.0/24',
    '192.168.0.0/16',
    '198.18.0.0/15',
    '224.0.0.0/4',
    '240.0.0.0/4',
    '64:ff9b::/96',
    'fc00::/7',
    'ff00::/8',
  ),
];

/** Whether the address lies in one of the ranges. */
export function inRanges(list: readonly AddressRange[], address: string): boolean {
  return list.some((range) => rangeContains(range, address));
}
