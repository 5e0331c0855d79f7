#include "chapters/05_interleaved/lab/interleaved.h"
#include "chapters/05_interleaved/lab/own_schedule.h"
#include "tests/labs/lab5.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  const labs::lab5::Answer answer{.interleaved = lab::interleaved, .own_schedule = lab::own_schedule};
  return labs::run_lab(
      argc, argv, 5, [&] { return labs::lab5::criteria(answer); }, [&] { return labs::lab5::drawing(answer); });
}
