#pragma once
/// @file
/// From the settings to the things they name.

#include <memory>

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "datasets/shares.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/comm/clock.h"

namespace stagecoach {

/// The device of --device, with --threads cores.
Device open_device(const Settings& settings);
/// The clock of --clock.
ClockKind clock_kind(const Settings& settings);
/// The data of --data; with --smoke a few generated pictures.
TrainTest open_data(const Settings& settings);
/// A loader for training: shuffled, and augmented if asked for. Without `pictures` it makes labels alone. Batches are
/// made ahead on a thread where the ranks leave a core for it.
Loader training_loader(const Settings& settings, const Dataset& data, bool pictures = true, const Shard& shard = {});
/// A loader for testing: in the stored order, as stored.
Loader test_loader(const Settings& settings, const Dataset& data, bool pictures = true, const Shard& shard = {});
/// The model of --model, without memory.
std::shared_ptr<Sequential> make_model_of(const Settings& settings, const Dataset& data);
/// The same, on `device`, with its initial weights.
std::shared_ptr<Sequential> open_model(const Settings& settings, const Dataset& data, Device device);
/// The optimizer of --optimizer over all parameters of `model`.
std::unique_ptr<Optimizer> open_optimizer(const Settings& settings, const Module& model);

}  // namespace stagecoach
