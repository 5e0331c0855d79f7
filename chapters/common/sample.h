#pragma once
/// @file
/// What a model of text writes: one byte after another, each drawn from the model's own prediction.

#include <functional>

#include "chapters/common/settings.h"
#include "nn/module.h"

namespace stagecoach {

/// With --sample N, prints N bytes that follow a line feed. For each, `forward` returns the logits [1, context, 256] of
/// the latest bytes [1, context] int32, padded at the end; where the model is spread over ranks, an undefined tensor on
/// those without logits. A byte is drawn from softmax(logits / 0.8), nanoGPT's usual temperature, with random numbers
/// of --seed and the index of the byte. `share` then returns the byte of the rank that drew it on all ranks.
void print_sample(const Settings& settings, const std::function<Tensor(const Tensor& tokens)>& forward,
                  const std::function<int(int byte)>& share = {}, bool prints = true);
/// Does so in evaluation: with the forward of `model` on `device`, or with another `forward` of it.
void print_sample(const Settings& settings, Module& model, Device device);
void print_sample(const Settings& settings, Module& model, const std::function<Tensor(const Tensor& tokens)>& forward);

}  // namespace stagecoach
