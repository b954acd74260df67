import { suite } from 'uvu';
import { runCase } from '../vectors/case.ts';
import { EGRESS_VECTORS } from '../vectors/egress-policy.ts';
import { explainer } from './explainer.ts';

const explain = explainer();

for (const [subject, cases] of Object.entries(EGRESS_VECTORS)) {
  const vectors = suite(`explain: ${subject}`);
  for (const one of cases) {
    vectors(`${one.row}: ${one.about}`, () => runCase(one, explain));
  }
  vectors.run();
}
