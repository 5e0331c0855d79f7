#pragma once
/// @file
/// Lab 7, part 2: one program runs a training step on several asynchronous devices, clock tick by clock tick.

#include <vector>

#include "core/tensor.h"
#include "parallel/pipeline/stage.h"

namespace stagecoach::lab {

/// A step of p stages and m micro-batches.
struct TickStep {
  std::vector<Stage>& stages;          ///< [p]
  const std::vector<Device>& devices;  ///< [p]: stage s is on devices[s], and no two stages share one
  const std::vector<Tensor>& images;   ///< [m], each [N_i, …] float32 on the host; sizes N_i may differ
  const std::vector<Tensor>& labels;   ///< [m], each [N_i] int32 on the host
};

/// Runs every micro-batch forward through all stages, and its gradient back.
///
/// - m + p - 1 ticks of forwards, then as many of backwards, counted from 0. Tick t of the forwards calls stage s for
///   micro-batch i where i + s = t. Tick t of the backwards calls it where i + (p - 1 - s) = t: micro-batch 0 comes
///   first, and reaches stage 0 last. Within a tick the order is yours.
/// - Whatever enters a stage is moved to its device first: images, activations, labels, gradients. An activation sets
///   out as soon as its stage has been called: a stage never waits for a later call of the stage before it. Stage 0
///   computes no gradient of the images. The last stage runs forward_with_loss, whose backward begins with 1 / N, where
///   N counts the samples of all micro-batches. That tensor, [], is on the last device too.
/// - Afterwards the stages' parameters have the gradients of the mean loss over the N samples. They are, bit for bit,
///   those of one device that runs micro-batches 0 … m - 1 in this order. The optimizer's step is the caller's.
/// - The program waits for no device: it reads no number, and the function may return before anything is computed.
///
/// Returns the sum of the losses of all samples, [] on the last device, added in the order of the micro-batches.
Tensor tick_step(const TickStep& step);

}  // namespace stagecoach::lab
