export const words = {
  en: {
    renewing: "Memory has changed while this was open. Looking again…",
    renewed: "Memory has changed while this was open. What you see is new: look again before you confirm.",
  },
  zh: {
    renewing: "打开期间记忆发生了变化，正在重新预览…",
    renewed: "打开期间记忆发生了变化。下面是最新的预览，确认前请再看一遍。",
  },
};
