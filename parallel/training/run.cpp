#include "parallel/training/run.h"

#include <fmt/format.h>

#include <csignal>
#include <cstddef>

#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/system.h"
#include "core/base/throw_if.h"
#include "core/cuda_backend.h"
#include "parallel/comm/communicator_controls.h"
#include "parallel/launch/rank_pool.h"
#include "parallel/training/same_training.h"
#include "parallel/training/summary.h"
#include "parallel/training/sums_over_ranks.h"
#include "parallel/training/training_state.h"

namespace stagecoach {

namespace {

/// Returns the devices of the wrapper's ranks.
std::vector<Device> devices_of(const RankRole& role) {
  throw_if<UsageError>(role.pool == nullptr,
                       "Run: expected the role of a Pipe or a DataParallel, got one of a rank; give its communicator, "
                       "too, as in Run(options, rank.comm, role)");
  return role.pool->devices();
}

bool ranks_share_cores(const RunOptions& options, Communicator& comm, int ranks) {
  return !options.has_processes() && comm.device().type == DeviceType::cpu && comm.clock().kind() == ClockKind::wall &&
         static_cast<std::size_t>(ranks) > system::usable_cores().size();
}

/// Returns the options' header, and what there is to say of the stages (see stages_text) and of the ranks' devices.
std::string header_text(const RunOptions& options, Communicator& comm, const RankRole& role) {
  std::string text = options.header;
  if (!role.stages.empty()) {
    text += fmt::format("  {:<13} {}\n", "stages", role.stages);
  }
  if (comm.device().type == DeviceType::cuda) {
    text += fmt::format("  {:<13} {}\n", "gpu", cuda::description(comm.device()));
  }
  const int ranks = role.pool == nullptr ? comm.size() : role.pool->ranks();
  if (ranks_share_cores(options, comm, ranks)) {
    text +=
        fmt::format("note: {} ranks share {} cores, so wall-clock times include waiting for a core{}\n", ranks,
                    system::usable_cores().size(), role.pool == nullptr ? "; clock `virtual_time` excludes it" : "");
  }
  return text;
}

}  // namespace

Run::Run(const RunOptions& options, Device device)
    : Run(options, self_communicator(device, options.clock, options.device_model), {}, {device}) {}

Run::Run(const RunOptions& options, const std::vector<Device>& devices)
    : Run(options, self_communicator(devices.back(), options.clock, options.device_model), {}, devices) {
  summary_place_ = "device";
}

Run::Run(const RunOptions& options, const RankRole& role)
    : Run(options, self_communicator(devices_of(role).back()), role, devices_of(role)) {}

Run::Run(const RunOptions& options, std::unique_ptr<Communicator> self_comm, const RankRole& role,
         const std::vector<Device>& devices)
    : Run(options, *self_comm, role, devices) {
  self_comm_ = std::move(self_comm);
}

Run::Run(const RunOptions& options, Communicator& comm, const RankRole& role)
    : Run(options, comm, role, {comm.device()}) {}

Run::Run(const RunOptions& options, Communicator& comm, const RankRole& role, const std::vector<Device>& devices)
    : options_(options),
      comm_(comm),
      role_(role),
      owner_of_layers_(role.replica_of.value_or(comm.rank())),
      folder_(options, comm.rank()),
      meter_(comm, devices, options.labels, role.pool),
      stop_(comm),
      keep_alive_(comm, options.timeout),
      trace_(comm, devices, options_, role.pool) {
  if (prints() || options.has_processes()) {
    catch_interrupts();  // launchers send signals to all processes; rank 0 decides for all
  }
  if (folder_.writes()) {
    std::signal(SIGPIPE, SIG_IGN);  // when nobody reads standard output any more (`| head -1`), the training continues
  }
  if (prints()) {
    const std::string header = header_text(options, comm, role);
    if (!header.empty()) {
      options.print(header);
    }
  }
  print_notes(options.notes);
}

void Run::set_role(const RankRole& role) {
  role_ = role;
  owner_of_layers_ = role.replica_of.value_or(comm_.rank());
}

void Run::print_notes(const std::vector<std::string>& notes) const {
  for (const std::string& note : notes) {
    if (prints()) {
      options_.print_line("note: " + printable(note));
    }
  }
}

void Run::set_up_checkpoints(const TrainTest& data, Module& model, Optimizer& optimizer) {
  model_ = &model;
  optimizer_ = &optimizer;
  learning_rate_ = optimizer.learning_rate();
  meter_.time_updates_of(optimizer);
  if (role_.sharded != nullptr) {
    STAGECOACH_CHECK(!optimizer.clips() || optimizer.sums_over_ranks(),
                     "run: expected a clipping optimizer to take the norm of all shards; call sum_squares_for() first");
  } else if (optimizer.clips()) {
    optimizer.sum_squares_with(sums_over_ranks(comm_, role_, model, optimizer));
  }
  folder_.lock();
  folder_.set_data(data);
  if (role_.parts && role_.parts->replicas == 0) {
    role_.parts->replicas = comm_.size();
  }
  folder_.set_parts(role_.parts);
  // Threads share the data. Where times are computed they make the same calls as processes, to start at the same time.
  if (options_.has_processes() || comm_.clock().kind() != ClockKind::wall) {
    require_data_of_rank_zero(data);
  }
  outline_ = gather_outline(comm_, state_of_rank(role_.layers, comm_.rank(), whole_layers(role_, model, optimizer)));
  with_files([&] {
    if (!options_.resume.empty()) {
      load_checkpoint((data.train.size() - 1) / options_.batch_size + 1);
    }
    comm_.barrier();  // all ranks have read before anything is moved
    folder_.begin(meter_.progress(), role_.profile);
  });
  comm_.barrier();  // from here on the folder is this run's
  if (folder_.writes()) {
    comm_.controls().leave_record_in(folder_.path());
  }
}

void Run::require_data_of_rank_zero(const TrainTest& data) {
  const Fingerprint mine = folder_.data() ? *folder_.data() : fingerprint_of(data);
  const std::vector<double> digests{static_cast<double>(names_digest(mine)), static_cast<double>(mine.train.digest),
                                    static_cast<double>(mine.test.digest)};
  const std::vector<double> expected = comm_.sum_numbers(comm_.rank() == 0 ? digests : std::vector<double>(3));
  throw_if<DataError>(expected != digests,
                      "rank {} has other {} than rank 0: expected `data` to name the same data for all processes; copy "
                      "them to all machines",
                      comm_.rank(), expected[0] != digests[0] ? "classes" : "images or labels");
}

void Run::with_files(const std::function<void()>& body) {
  const bool has_files = folder_.writes() || !options_.resume.empty();
  has_files ? keep_alive_.during(body) : body();
}

void Run::load_checkpoint(std::int64_t batches) {
  Checkpoints::Found saved = newest_checkpoint();
  if (options_.epochs_behind > 0) {
    const StatePart mine = part_of_rank(role_.layers, owner_of_layers_, comm_.device());
    saved.state = folder_.resumed().at(saved.progress.epoch - options_.epochs_behind, 0, mine).state;
  }
  take_state(role_, owner_of_layers_, saved.state, *model_, *optimizer_, options_.resume);
  const Progress& progress = saved.progress;
  const bool rate_has_ended = options_.rate.shape != RateShape::constant;
  throw_if<UsageError>(progress.epoch > options_.epochs, "`resume` {}: the run is done after {}{}", options_.resume,
                       counted(progress.epoch - 1, "epoch"),
                       rate_has_ended ? ", over which its learning rate fell; start a new run for more epochs"
                                      : fmt::format("; give a larger total, such as `epochs` {}", progress.epoch + 4));
  throw_if<DataError>(
      progress.step > batches,
      "`resume` {}: {} steps of epoch {} are done, but with these data an epoch has {}; give data of at "
      "least as many batches",
      options_.resume, progress.step, progress.epoch, batches);
  if (prints()) {
    options_.print_line(fmt::format("Continues in epoch {} after {} steps", progress.epoch, progress.step));
  }
  print_notes(options_.resume_notes);
  meter_.resume(progress, role_.loss_rank);
}

/// Returns the checkpoint that rank 0 finds, on all ranks.
Checkpoints::Found Run::newest_checkpoint() const {
  const Checkpoints checkpoints = folder_.resumed();
  const StatePart mine = part_of_rank(role_.layers, owner_of_layers_, comm_.device());
  if (comm_.rank() != 0) {  // adds nothing to the numbers of rank 0
    const std::vector<double> numbers = comm_.sum_numbers({0, 0});
    throw_if<DataError>(numbers[0] < 0, "`resume` {}: rank 0 has refused the data, and says why", options_.resume);
    return checkpoints.at(static_cast<std::int64_t>(numbers[0]), static_cast<std::int64_t>(numbers[1]), mine);
  }
  const auto require_data = [&](const std::optional<Fingerprint>& saved) {
    try {
      require_same_data(saved, *folder_.data(), options_);
    } catch (const OtherData&) {
      if (options_.has_processes()) {  // so that all processes have the exit code of this error
        comm_.sum_numbers({-1, 0});
      }
      throw;
    }
  };
  Checkpoints::Found found = checkpoints.newest(&outline_, mine, require_data);
  for (const std::string& reason : found.skipped) {
    options_.print_line("Skipped: " + printable(reason));
  }
  print_notes(data_notes(found.data, *folder_.data()));
  print_notes(parts_notes(found.parts, role_.parts));
  comm_.sum_numbers({static_cast<double>(found.progress.epoch), static_cast<double>(found.progress.step)});
  return found;
}

void Run::save(const EpochResult* result) {
  if (folder_.writes()) {
    with_files([&] {
      folder_.save(comm_, role_.layers, meter_.progress(), whole_layers(role_, *model_, *optimizer_), result);
    });
  }
}

Run::~Run() = default;

Epoch* Run::next_epoch() {
  if (epoch_ != nullptr) {
    epoch_->finish();
    epoch_.reset();
  }
  if (meter_.progress().epoch <= options_.epochs) {
    epoch_ = std::make_unique<Epoch>(*this);
  } else if (prints()) {
    if (folder_.writes()) {
      options_.print_line("Results: " + printable(folder_.path().string()));
    }
    if (options_.summary) {
      options_.print(summary(results_, summary_place_));
    }
    if (folder_.writes() && options_.when_done) {
      options_.when_done(folder_.path());
    }
  }
  return epoch_.get();
}

}  // namespace stagecoach
