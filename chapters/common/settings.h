#pragma once
/// @file
/// What a run was asked to do: the values of the flags.

#include <cstdint>
#include <string>

#include "core/device.h"

namespace stagecoach {

struct Settings {
  std::string program;  ///< "ch01_single_device"

  std::string data = "generated";
  bool augment = false;
  std::int64_t image_size = 0;  ///< 0: what the model is made for

  std::string model = "convnet";
  std::string head = "logits";

  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  std::int64_t microbatches = 1;
  std::string optimizer = "sgd";
  double lr = 0;  ///< 0: 0.01 for sgd, 0.001 for adam
  double momentum = 0.9;
  double weight_decay = 0;
  std::uint64_t seed = 0;

  std::string device = "cpu";
  int threads = 1;

  std::string out;
  std::string resume;
  bool explain = false;
  bool profile = false;
  bool smoke = false;
};

/// The settings as a table for people, with a heading.
std::string settings_table(const Settings& settings);
/// All settings that shape the training, as a JSON object (config.json).
std::string to_json(const Settings& settings);
/// Reads to_json's text. Throws DataError that names `where` when it is damaged.
Settings settings_from_json(const std::string& text, const std::string& where);
/// The flag (without dashes) whose value differs between two runs that should train alike, or "".
std::string first_difference(const Settings& a, const Settings& b);

}  // namespace stagecoach
