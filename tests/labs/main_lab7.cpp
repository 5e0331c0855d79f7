#include "chapters/07_one_controller/lab/move.h"
#include "chapters/07_one_controller/lab/tick_step.h"
#include "tests/labs/lab7.h"
#include "tests/labs/run_lab.h"

int main(int argc, char** argv) {
  using namespace stagecoach;
  return labs::run_lab(argc, argv, 7, [] {
    return labs::lab7::criteria({lab::start_move, lab::finish_move, lab::tick_step});
  });
}
