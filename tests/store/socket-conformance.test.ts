import { join } from 'node:path';
import { openDirectoryStore } from '../../store/directory.ts';
import { SocketStore } from '../../store/socket-client.ts';
import { serveStore } from '../../store/socket-server.ts';
import { conformance } from './conformance.ts';
import { folder, kinds } from './support.ts';

conformance(
  'socket store',
  async () => {
    const { path, remove } = folder();
    const store = await openDirectoryStore(path, { kinds, history: 8, bookmarkMs: 50 });
    const socket = join(path, '.sandgate/run/store.sock');
    const server = await serveStore({ store, path: socket, incarnation: store.incarnation });
    const client = new SocketStore({ path: socket });
    return {
      store: client,
      close: async () => {
        await client.close();
        await server.close();
        await store.close();
        remove();
      },
    };
  },
  { expiresAfter: 40, bookmarks: true },
);
