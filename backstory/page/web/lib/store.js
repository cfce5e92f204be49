// Shared values that components follow, such as the language or the token.
import { useEffect, useState } from "./html.js";

/** Make a value that can be read, set and followed. */
export function createStore(initial) {
  let value = initial;
  const followers = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const follower of [...followers]) follower(value);
    },
    follow(follower) {
      followers.add(follower);
      return () => followers.delete(follower);
    },
  };
}

/** Return the value of a store, and render again when it changes. */
export function useStore(store) {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    setValue(store.get());
    return store.follow(setValue);
  }, [store]);
  return value;
}
