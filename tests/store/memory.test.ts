import { MemoryStore } from '../../store/table-store.ts';
import { conformance } from './conformance.ts';
import { kinds } from './support.ts';

conformance(
  'memory store',
  async () => {
    const store = new MemoryStore({ kinds, history: 8, bookmarkMs: 50 });
    return { store, close: () => store.close() };
  },
  { expiresAfter: 40, bookmarks: true },
);
