import { suite } from 'uvu';
import { decide } from '../../policy-compiler/decide/decide.ts';
import { runCase } from '../vectors/case.ts';
import { EGRESS_VECTORS } from '../vectors/egress-policy.ts';

for (const [subject, cases] of Object.entries(EGRESS_VECTORS)) {
  const vectors = suite(`decide(): ${subject}`);
  for (const one of cases) {
    vectors(`${one.row}: ${one.about}`, () => runCase(one, decide));
  }
  vectors.run();
}
