import { openDirectoryStore } from '../../store/directory.ts';
import { conformance } from './conformance.ts';
import { folder, kinds } from './support.ts';

conformance(
  'directory store',
  async () => {
    const { path, remove } = folder();
    const store = await openDirectoryStore(path, { kinds, history: 8, bookmarkMs: 50 });
    return {
      store,
      close: async () => {
        await store.close();
        remove();
      },
    };
  },
  { expiresAfter: 40, bookmarks: true },
);
