// The guided tour: eight states of the page, each with what to see and one thing to try.

export const TOUR = [
  ["One rank works, three wait", "schedule=naive&microbatches=4",
    "A model is cut into four stages, one per rank. Each micro-batch passes all stages forward (blue) and back (orange) before the next one starts, so at any moment one rank works and three wait (grey).",
    "Click a grey gap: who does that rank wait for?"],
  ["GPipe: micro-batches one behind the other", "schedule=gpipe",
    "As soon as rank 0 has finished micro-batch 0, rank 1 starts on it while rank 0 already works on the next one. Only the corners stay grey: the bubble, (p − 1) / (m + p − 1) of the step.",
    "Drag the micro-batches up and watch the idle share. (The batch grows with them here.) What does it cost in activations?"],
  ["1F1B: the same time, less memory", "schedule=1f1b&pinned=schedule~gpipe&follow=true",
    "Each rank starts a backward as soon as it can, and so frees activations early: rank 0 keeps 4 micro-batches, and not all 8. The step takes as long as GPipe's, which is pinned above.",
    "Raise the micro-batches of both: GPipe's peak activations grow, those of 1F1B do not."],
  ["Interleaved: smaller bubbles for more messages", "schedule=interleaved&chunks=2&pinned=schedule~1f1b&follow=true",
    "Each rank holds two chunks: rank 0 has the first and the fifth eighth of the model. The pipeline fills in half the time, so the bubble halves.",
    "Raise the latency of messages, of both: from where on do the additional messages cost more than the smaller bubble gains?"],
  ["Zero bubble: the backward in two parts", "schedule=zb-h1&pinned=schedule~1f1b&follow=true",
    "The previous stage waits only for the input gradient (I). The weight gradient (W, yellow) can be computed later, where the rank would be idle.",
    "Make the input gradient slower than the others. Where do gaps come back?"],
  ["A V: the first and the last stage on one rank", "schedule=zbv&microbatches=12&pinned=schedule~zb-h1&follow=true",
    "Rank 0 holds the first stage and the last one. The turn of the V is on one rank, without a message, and all ranks keep equally many activations.",
    "Open “Times of each stage” and make the last stage slow, as a head often is. Which rank suffers?"],
  ["PipeDream: no flush, but versions of the weights", "schedule=pipedream&microbatches=12&update=0.5",
    "Nobody waits for a step to end: every micro-batch is followed by an update (green). A backward needs the weights that its forward used, so rank 0 keeps four versions, and its gradients are late.",
    "Set the micro-batches per batch to 4: how many versions are left, and by how many updates are gradients late?"],
  ["Your own schedule", "ranks=2&microbatches=3&table=0F0%2C0B0%2C0F1%2C0F2%2C0B1%2C0B2%3B1F1%2C1F0%2C1B0%2C1B1%2C1F2%2C1B2",
    "Rank 0 wants the gradient of micro-batch 0 before it sends micro-batch 1; rank 1 wants micro-batch 1 first. Both wait forever: a deadlock, the red circle.",
    "Repair it: drag 0F1 before 0B0, or 1F1 behind 1B0. Then beat the step of 1F1B, which is 12: write some of the B as I and W, and let W wait."],
]; // prettier-ignore

export function showTour(section, step, go) {
  section.hidden = step < 1;
  if (step < 1) return;
  const [title, , text, task] = TOUR[step - 1];
  section.innerHTML = `<h2>${step} of ${TOUR.length}: ${title}</h2><p>${text}</p><p><b>Try:</b> ${task}</p>
    <p class="row"><button type="button" data-step="${step - 1}"${step === 1 ? " disabled" : ""}>Back</button>
    <button type="button" class="main" data-step="${step === TOUR.length ? 0 : step + 1}">${step === TOUR.length ? "End of the tour" : "Next"}</button>
    ${step < TOUR.length ? '<button type="button" data-step="0">Leave</button>' : ""}</p>`;
  for (const button of section.querySelectorAll("button")) button.onclick = () => go(Number(button.dataset.step));
}
