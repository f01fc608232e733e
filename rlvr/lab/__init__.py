"""The tunnel: rollouts, the step, training runs and the folders they leave.

Nothing is imported here, so that reading a run folder (``rlvr.lab.store``) never costs an import of torch.
"""
