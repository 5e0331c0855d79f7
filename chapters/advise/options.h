#pragma once
/// @file
/// The flags of the program advise.

#include <optional>
#include <string>
#include <vector>

#include "chapters/common/settings.h"

namespace stagecoach {

inline constexpr const char* kAdvise = "advise";

/// How the answers are printed.
enum class AdviceForm { text, json, csv };

struct AdviseOptions {
  Settings settings;                  ///< of the model, the batch and the ranks; its flags are those of the chapters
  std::string given;                  ///< the flags of the settings that were given, for the winner's command
  std::vector<std::string> profiles;  ///< files; empty: the layers are those of --model
  double memory_limit = 0;            ///< bytes; 0: the memory of the modelled device
  // What is not fixed is searched.
  std::optional<int> data;
  std::optional<int> pipeline;
  std::optional<int> tensor;
  std::optional<int> microbatches;
  std::optional<bool> recompute;
  std::optional<std::size_t> bucket_size;  ///< bytes
  std::vector<std::string> schedules;
  bool late = false;  ///< also pipelines whose gradients are late
  int count = 10;     ///< of plans to print
  int verify = 0;     ///< of plans to run on the modelled clock
  bool rejected = false;
  bool pareto = false;  ///< print the plans that no other beats in time and memory, instead of the best
  AdviceForm form = AdviceForm::text;
};

/// Parses the command line. Throws as parse_command_line does, and UsageError for flags that contradict each other.
AdviseOptions advise_options(int argc, const char* const* argv);

}  // namespace stagecoach
