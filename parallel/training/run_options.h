#pragma once
/// @file
/// What a run is told: plain values, which a program fills in from flags, from a file or by itself.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "nn/rate_schedule.h"
#include "parallel/comm/clock.h"
#include "parallel/launch/launch.h"
#include "parallel/training/console.h"

namespace stagecoach {

struct RunOptions {
  std::string out = {};          ///< the folder that the run writes to; empty: it writes nothing
  std::string resume = {};       ///< the folder of the run to continue, often the same; empty: a new run
  bool accept_new_data = false;  ///< continues with data other than those of the checkpoint
  std::int64_t epochs = 1;       ///< of the whole run, with those before a resume
  std::int64_t batch_size = 1;   ///< samples per step: a checkpoint with more steps than an epoch has is refused
  /// Per sample; accuracies are per label. 0: there are none, as in a regression, and no accuracy.
  std::int64_t labels = 1;
  RateSchedule rate = {};  ///< of the learning rate; its number of steps is that of all epochs
  bool profile = false;    ///< prints how the first steps spent their time; each operation is then waited for
  bool summary = false;    ///< prints the five numbers of summary.h at the end

  // The settings of the program, as texts.
  std::string header = {};      ///< printed first
  std::string config = "{}\n";  ///< all of config.json
  /// A JSON object of those that shape the training: a checkpoint that was saved with others is refused (trains_alike).
  std::string training = {};
  std::vector<std::string> notes = {};         ///< printed after the header
  std::vector<std::string> resume_notes = {};  ///< printed after a checkpoint was loaded

  // The ranks.
  Transport transport = Transport::thread;
  double timeout = 30;  ///< seconds that a rank waits for another before it fails
  // The clock of a program of one rank; other ranks have that of their communicator.
  ClockKind clock = ClockKind::wall;
  DeviceModel device_model = {};  ///< of the modelled clock

  /// Prints text of one or more lines, on rank 0.
  std::function<void(const std::string& text)> print = print_text;
  /// Called by rank 0 after the last epoch, if the run has a folder, which has all its files then.
  std::function<void(const std::filesystem::path& folder)> when_done = {};
  /// For demonstrations of what goes wrong: this rank loads its state from the checkpoint so many epochs before the
  /// one that the others load.
  std::int64_t epochs_behind = 0;

  bool has_processes() const { return transport != Transport::thread; }
  void print_line(const std::string& line) const { print(line + "\n"); }
};

}  // namespace stagecoach
