#include "chapters/common/run.h"

#include <fmt/format.h>

#include <cmath>
#include <csignal>

#include "chapters/common/data_check.h"
#include "chapters/common/program.h"
#include "chapters/common/summary.h"
#include "chapters/common/training_state.h"
#include "core/asynchronous.h"
#include "core/base/printable.h"
#include "core/base/throw_if.h"
#include "parallel/launch/launch.h"

namespace stagecoach {

Run::Run(const Settings& settings, Device device)
    : Run(settings, self_communicator(device, settings.world.clock), {device}) {}

Run::Run(const Settings& settings, const std::vector<Device>& devices)
    : Run(settings, self_communicator(devices.back(), settings.world.clock), devices) {
  summary_place_ = "device";
}

Run::Run(const Settings& settings, std::unique_ptr<Communicator> self_comm, const std::vector<Device>& devices)
    : Run(settings, *self_comm, {}, devices) {
  self_comm_ = std::move(self_comm);
}

Run::Run(const Settings& settings, Communicator& comm, const RankRole& role)
    : Run(settings, comm, role, {comm.device()}) {}

Run::Run(const Settings& settings, Communicator& comm, const RankRole& role, const std::vector<Device>& devices)
    : settings_(settings),
      comm_(comm),
      role_(role),
      layers_of_(role.replica_of.value_or(comm.rank())),
      folder_(settings, comm.rank()),
      meter_(comm, devices),
      stop_(comm),
      keep_alive_(comm, settings.world.timeout),
      trace_(comm, devices, settings.run.profile) {
  if (prints() || settings.world.transport != Transport::thread) {
    catch_interrupts();  // launchers send signals to all processes; rank 0 decides for all
  }
  if (!settings.run.out.empty()) {
    std::signal(SIGPIPE, SIG_IGN);  // when nobody reads standard output any more (`| head -1`), the training continues
  }
  if (prints()) {
    print_header(settings, comm, role.stages);
  }
}

void Run::print_notes(const std::vector<std::string>& notes) const {
  for (const std::string& note : notes) {
    if (prints()) {
      print_line("note: " + printable(note));
    }
  }
}

void Run::set_up_checkpoints(const TrainTest& data, Module& model, Optimizer& optimizer) {
  model_ = &model;
  optimizer_ = &optimizer;
  folder_.lock();
  folder_.set_data(data);
  if (settings_.world.transport != Transport::thread) {  // threads share the data
    require_data_of_rank_zero(data);
  }
  outline_ = gather_outline(comm_, state_of_rank(role_.layers, comm_.rank(), whole_model(role_, model, optimizer)));
  with_files([&] {
    if (!settings_.run.resume.empty()) {
      load_checkpoint((data.train.size() - 1) / settings_.training.batch_size + 1);
    }
    comm_.barrier();  // all ranks have read before anything is moved
    folder_.begin(meter_.progress(), role_.profile);
  });
  comm_.barrier();  // from here on the folder is this run's
  if (folder_.writes()) {
    comm_.leave_record_in(folder_.path());
  }
}

void Run::require_data_of_rank_zero(const TrainTest& data) {
  const Fingerprint mine = folder_.data() ? *folder_.data() : fingerprint_of(data);
  const std::vector<double> digests{static_cast<double>(names_digest(mine)), static_cast<double>(mine.train.digest),
                                    static_cast<double>(mine.test.digest)};
  Tensor expected = Tensor::from(digests, {3}, comm_.device());
  comm_.broadcast(expected, 0);
  const auto wanted = expected.to_vector<double>();
  throw_if<DataError>(wanted != digests,
                      "rank {} has other {} than rank 0: expected --data to name the same data for all processes; copy "
                      "them to all machines",
                      comm_.rank(), wanted[0] != digests[0] ? "classes" : "images or labels");
}

void Run::with_files(const std::function<void()>& body) {
  const bool has_files = folder_.writes() || !settings_.run.resume.empty();
  has_files ? keep_alive_.during(body) : body();
}

void Run::load_checkpoint(std::int64_t batches) {
  Checkpoints::Found saved = newest_checkpoint();
  if (has_stale_shard(settings_.training.inject, comm_)) {
    const StatePart mine = part_of_rank(role_.layers, layers_of_, comm_.device());
    saved.state = folder_.resumed().at(saved.progress.epoch - 1, 0, mine).state;
  }
  take_state(role_.layers, layers_of_, saved.state, *model_, *optimizer_, settings_.run.resume);
  const Progress& progress = saved.progress;
  throw_if<UsageError>(progress.epoch > settings_.training.epochs,
                       "--resume {}: all {} epoch(s) of the run are done; give a larger total, such as --epochs {}",
                       settings_.run.resume, progress.epoch - 1, progress.epoch + 4);
  throw_if<DataError>(
      progress.step > batches,
      "--resume {}: {} steps of epoch {} are done, but with these data an epoch has {}; give data of at "
      "least as many batches",
      settings_.run.resume, progress.step, progress.epoch, batches);
  if (prints()) {
    print_line(fmt::format("Continues in epoch {} after {} steps", progress.epoch, progress.step));
  }
  const std::string& before = settings_.run.resumed_level;
  const std::string& now = settings_.world.cpu_level;
  if (!before.empty() && !now.empty() && before != now) {
    print_notes(
        {fmt::format("until here, the CPU kernels were those of {0}; those of {1} may round the last bits "
                     "differently (STAGECOACH_LEVEL={0} keeps the level, where it was built and is supported)",
                     before, now)});
  }
  meter_.resume(progress, role_.loss_rank);
}

/// Returns the checkpoint that rank 0 finds, on all ranks.
Checkpoints::Found Run::newest_checkpoint() const {
  const Checkpoints checkpoints = folder_.resumed();
  const StatePart mine = part_of_rank(role_.layers, layers_of_, comm_.device());
  Tensor epoch_and_step = Tensor::zeros({2}, DType::float64, comm_.device());
  if (comm_.rank() != 0) {
    comm_.broadcast(epoch_and_step, 0);
    const auto numbers = epoch_and_step.to_vector<double>();
    throw_if<DataError>(numbers[0] < 0, "--resume {}: rank 0 has refused the data, and says why", settings_.run.resume);
    return checkpoints.at(static_cast<std::int64_t>(numbers[0]), static_cast<std::int64_t>(numbers[1]), mine);
  }
  const auto require_data = [&](const std::optional<Fingerprint>& saved) {
    try {
      require_same_data(saved, *folder_.data(), settings_.run);
    } catch (const OtherData&) {
      if (settings_.world.transport != Transport::thread) {  // so that all processes have the exit code of this error
        epoch_and_step.fill(-1);
        comm_.broadcast(epoch_and_step, 0);
      }
      throw;
    }
  };
  Checkpoints::Found found = checkpoints.newest(&outline_, mine, require_data);
  for (const std::string& reason : found.skipped) {
    print_line("Skipped: " + printable(reason));
  }
  print_notes(data_notes(found.data, *folder_.data()));
  epoch_and_step.narrow(0, 1).fill(static_cast<double>(found.progress.epoch));
  epoch_and_step.narrow(1, 1).fill(static_cast<double>(found.progress.step));
  comm_.broadcast(epoch_and_step, 0);
  return found;
}

void Run::save(const EpochResult* result) {
  if (folder_.writes()) {
    with_files([&] {
      folder_.save(comm_, role_.layers, meter_.progress(), whole_model(role_, *model_, *optimizer_), result);
    });
  }
}

Run::~Run() = default;

Epoch* Run::next_epoch() {
  if (epoch_ != nullptr) {
    epoch_->finish();
    epoch_.reset();
  }
  if (meter_.progress().epoch <= settings_.training.epochs) {
    epoch_ = std::make_unique<Epoch>(*this);
  } else if (prints()) {
    if (folder_.writes()) {
      print_line("Results: " + printable(folder_.path().string()));
    }
    if (settings_.run.summary) {
      print_text(summary(results_, summary_place_));
    }
  }
  return epoch_.get();
}

void Epoch::start_clock(std::int64_t steps) {
  steps_ = steps;
  if (run_.predictor_.start_epoch) {
    run_.predictor_.start_epoch();
  }
  run_.meter_.start_epoch();
  run_.stop_.restart(steps_done());
  bar_.emplace(number(), steps, run_.prints());
  run_.comm_.barrier();
  run_.meter_.start_clock();
  run_.trace_.begin(number(), steps_done() + 1);
}

void Epoch::add_step(std::int64_t images) {
  run_.meter_.add_step(images);
  const bool is_cpu = run_.comm_.device().type == DeviceType::cpu;  // on a GPU, read_sums() waits for the device
  if (is_cpu) {
    read_sums();
  }
  run_.meter_.add_time();
  run_.trace_.add_step();
  const bool has_losses = is_cpu && run_.comm_.rank() == run_.role_.loss_rank && !run_.role_.splits_losses;
  bar_->show(steps_done(), has_losses ? std::optional(run_.meter_.mean_loss()) : std::nullopt);
}

void Epoch::stop_if_refused() {
  if (run_.stop_.refused()) {
    save_and_stop();
  }
}

void Epoch::stop_if_asked() {
  if (run_.stop_.asked()) {
    save_and_stop();
  }
}

void Epoch::finish_training() {
  finish_queued_calls();  // of asynchronous devices: the sums wait for one of them only
  read_sums();
  run_.comm_.barrier();
  run_.meter_.add_time();
  run_.meter_.stop_counting_bytes();
  run_.stop_.restart();
  bar_.reset();
  run_.trace_.finish(run_.folder_, run_.keep_alive_, run_.predictor_.timeline);
  if (run_.predictor_.time) {
    prediction_ = run_.predictor_.time(steps_);
  }
}

void Epoch::read_sums() {
  run_.meter_.read_sums();
  if (!std::isfinite(run_.meter_.progress().loss_sum)) {
    throw diverged("loss");
  }
}

/// Checks the weights themselves, since the last loss was computed before the last update.
void Epoch::require_finite_weights() const {
  for (const auto& [name, parameter] : run_.model_->named_parameters()) {
    if (!std::isfinite(sum_of_squares(parameter))) {
      throw diverged("weight");
    }
  }
}

UsageError Epoch::diverged(const char* what) const {
  const Settings& settings = run_.settings_;
  return UsageError(
      fmt::format("training has diverged: expected finite numbers, got a {} that is NaN or infinite in epoch {}, step "
                  "{}; use a smaller --lr than {}. {}",
                  what, number(), steps_done(), settings.training.lr,
                  settings.run.out.empty() ? "Nothing was saved, because --out was not given"
                                           : "Earlier checkpoints remain in " + settings.run.out));
}

void Epoch::save_and_stop() {
  bar_.reset();
  run_.trace_.finish(run_.folder_, run_.keep_alive_, run_.predictor_.timeline);
  read_sums();
  require_finite_weights();
  run_.meter_.combine_ranks();
  run_.save();
  run_.with_files([&] { run_.folder_.require_resumable(run_.meter_.progress(), &run_.outline_); });
  if (run_.prints()) {
    const RunFolder& folder = run_.folder_;
    print_line(fmt::format("Interrupted in epoch {}, step {}. {}", number(), steps_done(),
                           folder.writes() ? "Saved; continue with --resume " + printable(folder.path().string())
                                           : "Nothing was saved, because --out was not given"));
  }
  run_.comm_.barrier();  // an exception on one rank ends all ranks, so everything must be written first
  throw Interrupted{};
}

void Epoch::finish() {
  require_finite_weights();
  run_.meter_.combine_ranks();
  const EpochResult result = run_.meter_.finish_epoch(prediction_);
  run_.save(&result);
  if (run_.prints()) {
    print_line(epoch_line(result));
  }
  run_.results_.push_back(result);
}

}  // namespace stagecoach
