/**
 * Loaded before every test file; mends two things of the runners.
 *
 * Node's `--test-timeout` does not end a file whose process goes on: here its deadline does.
 *
 * uvu loses an error of a hook (a `return` in its `finally` swallows it): a suite whose
 * `before` fails runs no test and passes. Here such an error is a failure with its text, like that of a test.
 */
import { registerHooks } from 'node:module';

const deadlineMs = Number(process.env['SANDGATE_TEST_DEADLINE_MS']);
if (process.env['NODE_TEST_CONTEXT'] !== undefined && deadlineMs > 0) {
  setTimeout(() => {
    process.stderr.write(`this file has not ended within ${deadlineMs} ms\n`);
    process.exit(1);
  }, deadlineMs).unref();
}

const LOSES = "\t} finally {\n\t\tstate.__test__ = '';\n\t\tfor (hook of after) await hook(state);\n";
const KEEPS = `\t} catch (err) {
\t\terrors += format('(hook)', err, name);
\t} finally {
\t\tstate.__test__ = '';
\t\ttry {
\t\t\tfor (hook of after) await hook(state);
\t\t} catch (err) {
\t\t\terrors += format('(hook after)', err, name);
\t\t}
`;

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    if (!url.endsWith('/uvu/dist/index.mjs')) {
      return loaded;
    }
    const source = String(loaded.source);
    if (!source.includes(LOSES)) {
      throw new Error('uvu has changed: look whether it still loses errors of hooks (scripts/test-preload.ts)');
    }
    return { ...loaded, source: source.replace(LOSES, KEEPS) };
  },
});
