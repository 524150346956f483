/*
 * commands.h - the subcommands; argv[0] is the subcommand's name, the result an exit status.
 */
#ifndef COMMANDS_H
#define COMMANDS_H

int command_bench(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_gradcheck(int argc, char **argv);
int command_health(int argc, char **argv);
int command_train(int argc, char **argv);

#endif
