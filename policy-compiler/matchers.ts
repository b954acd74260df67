import type { AddressRange } from '../base/addresses.ts';
import { any, type EnvoyJson } from '../proto/resource.ts';
import { ALL_PORTS, type Ports } from './l4-policy.ts';
import { portPattern } from './port-pattern.ts';

export type MatcherJson = EnvoyJson['xds.type.matcher.v3.Matcher'];
type FieldMatcherJson = NonNullable<NonNullable<MatcherJson['matcherList']>['matchers']>[number];
export type PredicateJson = NonNullable<FieldMatcherJson['predicate']>;
type OnMatchJson = NonNullable<MatcherJson['onNoMatch']>;

const INPUTS = {
  ip: any('envoy.extensions.matching.common_inputs.network.v3.DestinationIPInput', {}),
  port: any('envoy.extensions.matching.common_inputs.network.v3.DestinationPortInput', {}),
  sni: any('envoy.extensions.matching.common_inputs.network.v3.ServerNameInput', {}),
  transport: any('envoy.extensions.matching.common_inputs.network.v3.TransportProtocolInput', {}),
  application: any('envoy.extensions.matching.common_inputs.network.v3.ApplicationProtocolInput', {}),
};

/** The destination address lies in one of the ranges. */
export function toRanges(ranges: readonly AddressRange[]): PredicateJson {
  return {
    singlePredicate: {
      input: { name: 'ip', typedConfig: INPUTS.ip },
      customMatch: {
        name: 'ip',
        typedConfig: any('envoy.extensions.matching.input_matchers.ip.v3.Ip', {
          cidrRanges: ranges.map(({ address, prefix }) => ({ addressPrefix: address, prefixLen: prefix })),
          statPrefix: 'ip',
        }),
      },
    },
  };
}

/** The destination port lies in one of the ranges; null when every port does. */
export function toPorts(ports: readonly Ports[]): PredicateJson | null {
  if (ports.some(({ from, to }) => from <= 1 && to === ALL_PORTS.to)) {
    return null;
  }
  const [only] = ports;
  return only !== undefined && ports.length === 1 && only.from === only.to
    ? textInput('port', { exact: String(only.from) })
    : textInput('port', { safeRegex: { googleRe2: {}, regex: portPattern(ports) } });
}

export const IS_TLS: PredicateJson = textInput('transport', { exact: 'tls' });

/** Cleartext HTTP of any version, as the HTTP inspector names it. */
export const IS_HTTP: PredicateJson = textInput('application', {
  safeRegex: { googleRe2: {}, regex: ".*'(?:http/1\\.[01]|h2c)'.*|http/1\\.[01]|h2c" },
});

/** The server name, which Envoy has lower-cased. */
export function sniIs(name: string): PredicateJson {
  return textInput('sni', { exact: name });
}

/** The client sent no server name: the input has no value then, and only a negation can hold. */
export const NO_SNI: PredicateJson = not(textInput('sni', { safeRegex: { googleRe2: {}, regex: '.+' } }));

export function sniEnds(suffix: string): PredicateJson {
  return textInput('sni', { suffix });
}

type StringMatcherJson = EnvoyJson['xds.type.matcher.v3.StringMatcher'];

function textInput(input: keyof typeof INPUTS, valueMatch: StringMatcherJson): PredicateJson {
  return { singlePredicate: { input: { name: input, typedConfig: INPUTS[input] }, valueMatch } };
}

/** All of them; nulls are left out. Envoy refuses lists of one. */
export function allOf(...predicates: readonly (PredicateJson | null)[]): PredicateJson {
  const real = predicates.filter((predicate) => predicate !== null);
  return real.length === 1 ? real[0]! : { andMatcher: { predicate: real } };
}

/** Any of them; at least one must be given. */
export function anyOf(predicates: readonly PredicateJson[]): PredicateJson {
  return predicates.length === 1 ? predicates[0]! : { orMatcher: { predicate: [...predicates] } };
}

export function not(predicate: PredicateJson): PredicateJson {
  return { notMatcher: predicate };
}

/** Chooses the filter chain of this name. */
export function toChain(name: string): OnMatchJson {
  return { action: { name, typedConfig: any('google.protobuf.StringValue', name) } };
}

/** One step of an ordered list. */
export function when(predicate: PredicateJson, chain: string): FieldMatcherJson {
  return { predicate, onMatch: toChain(chain) };
}

/** Ordered list: the first that matches decides, else the chain `otherwise`. An empty list is the latter alone. */
export function firstOf(matchers: readonly FieldMatcherJson[], otherwise: string): MatcherJson {
  return matchers.length === 0
    ? { onNoMatch: toChain(otherwise) }
    : { matcherList: { matchers: [...matchers] }, onNoMatch: toChain(otherwise) };
}
