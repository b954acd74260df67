import { ACTIONS, TLS } from './actions.ts';
import type { VectorCase } from './case.ts';
import { CONNECTIONS } from './connections.ts';
import { MATCHING } from './matching.ts';
import { MCP } from './mcp.ts';
import { SELECTION } from './selection.ts';

/**
 * The test vectors of the egress specification that are carried out so far, as decisions D8, D10 and D13 answer them,
 * by subject. Every decider (`decide()`, the compiler's `explain`) has to agree with all of them.
 */
export const EGRESS_VECTORS: Readonly<Record<string, readonly VectorCase[]>> = {
  selection: SELECTION,
  connections: CONNECTIONS,
  matching: MATCHING,
  actions: ACTIONS,
  tls: TLS,
  mcp: MCP,
};
