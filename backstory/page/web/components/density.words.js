export const words = {
  en: {
    strip: "{n} over time, from {since} to {until}. Most at once: {most}, around {busiest}.",
    empty: "No updates in this range.",
    hint: "Click to go to a moment, drag to zoom in.",
    legend: "Kinds of updates",
  },
  zh: {
    strip: "{n}随时间的分布，从 {since} 到 {until}。最密集处：{busiest} 前后 {most}。",
    empty: "此时间段内没有更新。",
    hint: "点击跳到某一时刻，拖动可放大。",
    legend: "更新的种类",
  },
};
