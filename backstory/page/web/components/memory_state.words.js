export const words = {
  en: {
    state: "State of this memory",
    full: "Full: {n} facts. What would a larger memory hold?",
    failed: ({ n }) => `Updates of ${n} ${n === "1" ? "conversation" : "conversations"} failed`,
    waiting: ({ n }) => `${n} ${n === "1" ? "conversation waits" : "conversations wait"} to be learned from`,
    noModel: "No model: nothing is learned by itself",
    unsaid: "Nothing was said yet. These lines record a conversation and learn from it:",
    unlearned: "Something was said, and nothing could be learned from it. This says why, or tries again:",
    soon: "What was said is learned from after a pause, or now:",
  },
  zh: {
    state: "此记忆的状态",
    full: "已满：{n} 条事实。更大的记忆会保留什么？",
    failed: "{n} 个对话的更新失败",
    waiting: "{n} 个对话等待学习",
    noModel: "没有模型：不会自动学习",
    unsaid: "还没有任何对话。以下命令记录一段对话并从中学习：",
    unlearned: "已有对话，但未能从中学到内容。以下命令说明原因或重试：",
    soon: "稍后会从对话中学习，也可以立即执行：",
  },
};
