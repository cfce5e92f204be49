// Ticks: a count that goes up at a calm interval, as long as the page is looked at.
import { useEffect, useState } from "./html.js";

/** Return a number that goes up every `seconds`, and when the page is looked at again after a while. */
export function useTick(seconds) {
  const [count, setCount] = useState(0);
  useEffect(() => {
    let last = Date.now();
    const look = () => {
      if (document.visibilityState !== "visible" || Date.now() - last < seconds * 1000 - 50) return;
      last = Date.now();
      setCount((before) => before + 1);
    };
    const timer = setInterval(look, seconds * 1000);
    document.addEventListener("visibilitychange", look);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [seconds]);
  return count;
}
