export const words = {
  en: {
    show: "What had it read?",
    hide: "Hide what it had read",
    "as-of": "Memory as of commit {seq}, {count} facts:",
    said: "Of what was said before, {count} turns:",
    erased: "erased since",
    withdrawn: "withdrawn since",
    differs: "The note does not match this ledger.",
  },
  zh: {
    show: "当时它读到了什么？",
    hide: "收起",
    "as-of": "提交 {seq} 时的记忆，{count} 条事实：",
    said: "此前对话中的 {count} 个轮次：",
    erased: "此后已被抹除",
    withdrawn: "此后已撤回",
    differs: "该记录与此账本不符。",
  },
};
