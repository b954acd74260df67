import type { DecisionRequest, ExplainedDecision } from '../../api/decision.ts';
import type { PolicyFacts } from '../../api/facts.ts';
import { scanMcp } from '../../extproc/egress/mcp-scan.ts';
import type { CompilerSettings } from '../../policy-compiler/compilation.ts';
import { createCompiler } from '../../policy-compiler/compile.ts';

/** Settings that change no decision. */
export const SETTINGS: CompilerSettings = {
  trustDomain: 'sandgate.local',
  tokenIssuer: 'sandgate',
  tokenAudience: 'egress',
  tokenJwks: '{"keys":[]}',
  egressSocket: '/run/egress.sock',
  gatewayCaFile: '/pki/ca.crt',
  resolver: null,
  originCaFile: '/pki/roots.pem',
};

/** A decider that compiles the facts and asks `explain`; the last facts are kept, so that they compile once. */
export function explainer(): (facts: PolicyFacts, request: DecisionRequest) => ExplainedDecision {
  const compiler = createCompiler({ scanMcp });
  let last: { readonly facts: PolicyFacts; readonly explain: (request: DecisionRequest) => ExplainedDecision } | null =
    null;
  return (facts, request) => {
    if (last?.facts !== facts) {
      const compilation = compiler.compile(facts, SETTINGS);
      last = { facts, explain: (one) => compilation.explain(one) };
    }
    return last.explain(request);
  };
}
