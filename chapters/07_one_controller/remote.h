#pragma once
/// @file
/// --form remote: a master drives the stages of a model on workers, by remote calls.

#include "chapters/common/settings.h"

namespace stagecoach {

/// Trains the model of --model from its initial weights for --epochs, once per number of micro-batches in --splits, and
/// prints a table of the times, test accuracies and losses; with --summary, the five numbers of the last training. With
/// --out, for which --splits has one number, writes config.json, metrics.jsonl and weights.safetensors. Rank 0 is the
/// master; the other ranks have one stage each.
void train_remotely(const Settings& settings);

}  // namespace stagecoach
