#pragma once
/// @file
/// Records the last communication of a rank, for a file that shows after a hang or failure who waited for whom, and in
/// which operation.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/file_identity.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "parallel/comm/activity.h"

namespace stagecoach {

/// All threads of a rank may use it.
class FlightRecorder {
 public:
  static constexpr std::size_t kEvents = 2000;  ///< older events are dropped
  static constexpr int kNobody = -1;

  struct Event {
    const char* operation = "";    ///< a string literal: "send", "all_reduce", …
    std::string group = {};        ///< name of the communicator's group
    int peer = kNobody;            ///< rank in the world; kNobody for a collective
    int tag = kNobody;             ///< of a message
    DType dtype = DType::float32;  ///< of the tensor that is sent or received
    Shape shape = {};
    Activity::Work work = {};  ///< what the rank was working on
    std::uint64_t number = 0;  ///< counts the rank's events from 0
    double begin = 0;          ///< seconds since 1970
    double end = 0;            ///< 0 while it is under way
  };

  /// Begins an event now and returns its number. The caller sets `operation`, `group`, `peer`, `tag`, `dtype` and
  /// `shape`.
  std::uint64_t begin(Event event);
  /// Marks the event as ended now.
  void end(std::uint64_t number);
  /// Returns the events, one JSON object per line, oldest first.
  std::string to_jsonl() const;

  /// Sets the folder for `leave`, which writes nothing before this call. The folder must belong to this run alone.
  void leave_in(const std::filesystem::path& folder);
  /// Writes to_jsonl to flight_RANK.jsonl in that folder, unless that folder was removed or replaced in the meantime:
  /// another run may be writing there. Write errors are ignored, because there is already an error to report.
  void leave(int rank) const noexcept;

 private:
  mutable std::mutex mutex_;   // guards the members below
  std::vector<Event> events_;  // event n at n % kEvents
  std::uint64_t next_ = 0;
  std::filesystem::path folder_;
  std::optional<FileIdentity> identity_;  // of folder_
};

/// Records an event that lasts until the end of the scope. If an exception ends the scope, the event stays marked as
/// under way.
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
