#pragma once
/// @file
/// The flags of the chapter programs: one row per flag.

#include <functional>
#include <string>
#include <vector>

#include "chapters/common/chapter.h"
#include "chapters/common/flag_value.h"

namespace stagecoach {

/// For what a flag's value holds, and so where it is saved.
enum class Scope {
  command,   ///< this command alone; it is not saved
  run,       ///< the run; config.json has it, and --resume may come with another value
  training,  ///< the training: another value would train other weights, so --resume refuses it
  /// The training of an asynchronous pipeline, where stages and replicas decide how late a gradient comes; else the
  /// run.
  asynchronous_training,
  /// The training of such a pipeline, or of ranks that share batches, as gradients are summed rank by rank; else the
  /// run.
  rank_dependent_training,
};

/// The chapters that offer a flag.
struct Chapters {
  std::vector<int> numbers = {};  ///< empty: all
  std::string elsewhere = "";     ///< why the others do not
};

struct Flag {
  std::string name;   ///< without dashes
  std::string group;  ///< its heading in --help
  FlagValue value;
  Scope scope;
  std::string help;
  Chapters chapters = {};

  bool is_offered_by(int chapter) const;
  /// Whether runs with other values of it, and otherwise `settings`, train other weights.
  bool shapes_training(const Settings& settings) const;
  bool is_saved() const { return scope != Scope::command; }
};

/// All flags, in the order of --help and config.json, with the words and texts that they have in `chapter`. Flags of
/// other chapters are among them.
std::vector<Flag> flag_table(const Chapter& chapter = {});

/// Whether a flag, named without dashes, is on the command line.
using WasGiven = std::function<bool(const std::string& flag)>;

}  // namespace stagecoach
