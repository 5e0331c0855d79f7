#pragma once
/// @file
/// The names of the files and folders that a run writes to its folder.

namespace stagecoach::run_files {

// Files of a training run.
inline constexpr const char* kConfig = "config.json";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kTrace = "trace.json";
inline constexpr const char* kWeights = "weights.safetensors";
inline constexpr const char* kReport = "report.html";
inline constexpr const char* kCheckpoints = "checkpoints";

// Files of a plan that is explained.
inline constexpr const char* kSchedule = "schedule.csv";
inline constexpr const char* kLoweredSchedule = "schedule_lowered.csv";
inline constexpr const char* kScheduleFigure = "schedule.svg";
inline constexpr const char* kScheduleTrace = "schedule_trace.json";
inline constexpr const char* kProfile = "profile.json";  // of a profiled training, too
inline constexpr const char* kPrediction = "prediction.json";
inline constexpr const char* kLedger = "ledger.csv";
inline constexpr const char* kTimelines = "timelines.svg";

/// All these names. In addition, failed ranks write flight_RANK.jsonl (parallel/comm/flight_recorder.h).
inline constexpr const char* kAll[] = {kConfig,      kMetrics,    kTrace,           kWeights,        kReport,
                                       kCheckpoints, kSchedule,   kLoweredSchedule, kScheduleFigure, kScheduleTrace,
                                       kProfile,     kPrediction, kLedger,          kTimelines};

}  // namespace stagecoach::run_files
