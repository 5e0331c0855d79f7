#pragma once
/// @file
/// The last communication of a rank, as a file to read when a training has hung or failed: who waited for whom, in
/// what.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file_identity.h"
#include "core/shape.h"
#include "parallel/comm/activity.h"

namespace stagecoach {

/// All threads of a rank may use it.
class FlightRecorder {
 public:
  static constexpr std::size_t kEvents = 2000;  ///< older ones are forgotten
  static constexpr int kNobody = -1;

  struct Event {
    const char* operation = "";    ///< a string literal: "send", "all_reduce", …
    std::string group = {};        ///< of the communicator
    int peer = kNobody;            ///< by its number in the world; kNobody for a collective
    int tag = kNobody;             ///< of a message
    DType dtype = DType::float32;  ///< with the shape: what travels
    Shape shape = {};
    Activity::Work work = {};  ///< what the rank was working on
    std::uint64_t number = 0;  ///< counts the rank's events from 0
    double begin = 0;          ///< seconds since 1970
    double end = 0;            ///< 0 while it is under way
  };

  /// An event begins now; returns its number. `operation`, `group`, `peer`, `tag`, `dtype` and `shape` are the
  /// caller's.
  std::uint64_t begin(Event event);
  /// It has ended, now.
  void end(std::uint64_t number);
  /// The events, one JSON object per line, oldest first.
  std::string to_jsonl() const;

  /// Chooses the folder for `leave`; before that there is none. It must be the run's own by now.
  void leave_in(const std::filesystem::path& folder);
  /// Writes to_jsonl to flight_RANK.jsonl in that folder, unless it was removed or replaced since: another run may be
  /// writing there. What cannot be written is left out, as there is an error to tell already.
  void leave(int rank) const noexcept;

 private:
  mutable std::mutex mutex_;   // guards what follows
  std::vector<Event> events_;  // event n at n % kEvents
  std::uint64_t next_ = 0;
  std::filesystem::path folder_;
  std::optional<FileIdentity> identity_;  // of folder_
};

/// An event that lasts until the end of the scope, unless an exception ends that: then it stays under way.
class Recorded {
 public:
  Recorded(FlightRecorder& recorder, FlightRecorder::Event event);
  ~Recorded();
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  FlightRecorder& recorder_;
  std::uint64_t number_;
  int exceptions_before_;
};

}  // namespace stagecoach
